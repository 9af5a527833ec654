// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/icmp.h"

#include <algorithm>
#include <cstring>

namespace xtreme::wire {
namespace {

bool IsErrorType(uint8_t type) {
  return type == static_cast<uint8_t>(IcmpType::kDestinationUnreachable) ||
         type == static_cast<uint8_t>(IcmpType::kTimeExceeded) ||
         type == static_cast<uint8_t>(IcmpType::kParameterProblem);
}

}  // namespace

Parsed<IcmpErrorView, IcmpError> IcmpErrorView::Parse(std::span<const uint8_t> message,
                                                      ChecksumCheck check) {
  if (message.size() < kIcmpErrorHeaderBytes) return IcmpError::kTruncated;
  if (check == ChecksumCheck::kVerify && Checksum(message) != 0) return IcmpError::kChecksum;
  if (!IsErrorType(message[0])) return IcmpError::kNotAnError;
  const auto offending = Ipv4View::ParseQuoted(message.subspan(kIcmpErrorHeaderBytes));
  if (offending.error() == Ipv4Error::kTruncated) return IcmpError::kQuoteTruncated;
  if (!offending.ok()) return IcmpError::kQuoteMalformed;
  if (offending->fragment_offset_bytes() != 0) return IcmpError::kQuoteFragment;
  if (offending->payload().size() < kIcmpQuotedPayloadBytes) return IcmpError::kQuoteTruncated;
  return IcmpErrorView(message, *offending);
}

size_t IcmpErrorRepr::Emit(std::span<uint8_t> to, std::span<const uint8_t> offending) const {
  const auto quoted = Ipv4View::ParseQuoted(offending);
  if (!quoted.ok() || quoted->payload().size() < kIcmpQuotedPayloadBytes) return 0;
  const size_t least_bytes = quoted->header_bytes() + kIcmpQuotedPayloadBytes;
  if (to.size() < kIcmpErrorHeaderBytes + least_bytes) return 0;
  const size_t quote_bytes = std::min({quoted->header_bytes() + quoted->payload().size(),
                                       to.size() - kIcmpErrorHeaderBytes, kIcmpMaxQuoteBytes});
  to[0] = static_cast<uint8_t>(type);
  to[1] = code;
  base::StoreBe16(&to[2], 0);
  base::StoreBe16(&to[4], 0);
  base::StoreBe16(&to[6], next_hop_mtu);
  std::memcpy(&to[kIcmpErrorHeaderBytes], offending.data(), quote_bytes);
  const size_t message_bytes = kIcmpErrorHeaderBytes + quote_bytes;
  base::StoreBe16(&to[2], Checksum(to.first(message_bytes)));
  return message_bytes;
}

}  // namespace xtreme::wire
