// SPDX-License-Identifier: Apache-2.0
// Any bytes behind an honest netlink length: every parser reads only those. Half of the inputs are
// framed as attributes first, so that they get past the framing and into the values.

#include <linux/netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "xtreme/host/netlink_parse.h"

namespace {

using Bytes = std::vector<uint8_t>;

// The fixed headers of the five messages are 8, 12 or 16 bytes long; attributes begin after them.
constexpr size_t kHeaderBytes[] = {8, 12, 16};
constexpr uint8_t kAttributeTypes = 32;
constexpr uint8_t kLongestValue = 40;

// {type, length, value...} over and over becomes attributes.
Bytes Frame(std::span<const uint8_t> input, size_t header_bytes) {
  Bytes message(input.begin(), input.begin() + static_cast<ptrdiff_t>(header_bytes));
  input = input.subspan(header_bytes);
  while (input.size() >= 2) {
    const size_t length = std::min<size_t>(input[1] % kLongestValue, input.size() - 2);
    const nlattr header{.nla_len = static_cast<uint16_t>(NLA_HDRLEN + length),
                        .nla_type = static_cast<uint16_t>(input[0] % kAttributeTypes)};
    const auto* first = reinterpret_cast<const uint8_t*>(&header);
    message.insert(message.end(), first, first + sizeof(header));
    message.insert(message.end(), input.begin() + 2,
                   input.begin() + 2 + static_cast<ptrdiff_t>(length));
    // The last one keeps its odd end: nothing pads it on the wire either.
    if (input.size() > length + 2) message.resize(NLA_ALIGN(message.size()));
    input = input.subspan(2 + length);
  }
  return message;
}

void ParseAll(const Bytes& payload) {
  const size_t total = NLMSG_HDRLEN + payload.size();
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[total]());
  std::copy(payload.begin(), payload.end(), exact.get() + NLMSG_HDRLEN);
  auto* message = reinterpret_cast<nlmsghdr*>(exact.get());
  message->nlmsg_len = static_cast<uint32_t>(total);
  xtreme::host::ParseInterface(*message);
  xtreme::host::ParseAddress(*message);
  xtreme::host::ParseRoute(*message);
  xtreme::host::ParseRule(*message);
  xtreme::host::ParseNeighbour(*message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  const std::span<const uint8_t> input(bytes, length);
  if (length < 17) {
    ParseAll(Bytes(input.begin(), input.end()));
    return 0;
  }
  const uint8_t choice = input[0];
  const size_t header_bytes = kHeaderBytes[choice % 3];
  Bytes payload(input.begin() + 1, input.end());
  if (choice % 2 == 0) payload = Frame(payload, header_bytes);
  payload[0] = header_bytes == 16 ? AF_UNSPEC : AF_INET;
  // Prefix lengths that are in range, and an index that is none of the refused ones.
  payload[1] %= 33;
  payload[4] = 1;
  payload[7] = 0;
  ParseAll(payload);
  return 0;
}
