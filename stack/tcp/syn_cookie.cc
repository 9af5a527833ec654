// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/syn_cookie.h"

#include <algorithm>

namespace xtreme::tcp {

Seq SynCookie::MakeFor(const FlowKey& key, Seq irs, uint32_t mss_index, uint32_t period) const {
  const uint64_t rest = uint64_t{irs.value()} << 32 | period << 3 | mss_index;
  const auto mac = static_cast<uint32_t>(hash_(key.addresses, key.ports, rest) & 0xFFFFFF);
  return Seq((period & kTimeMask) << 27 | mss_index << 24 | mac);
}

Seq SynCookie::Make(const FlowKey& key, Seq irs, uint16_t mss, base::Nanoseconds now) const {
  const auto above = std::upper_bound(kMss.begin(), kMss.end(), mss);
  const auto index = std::max<ptrdiff_t>(above - kMss.begin() - 1, 0);
  return MakeFor(key, irs, static_cast<uint32_t>(index), static_cast<uint32_t>(now / kPeriod));
}

std::optional<uint16_t> SynCookie::Check(const FlowKey& key, Seq irs, Seq ack,
                                         base::Nanoseconds now) const {
  const Seq cookie = ack - 1u;
  const auto current = static_cast<uint32_t>(now / kPeriod);
  const uint32_t age = (current - (cookie.value() >> 27)) & kTimeMask;
  if (age > 1) return std::nullopt;
  const uint32_t index = cookie.value() >> 24 & 7;
  if (MakeFor(key, irs, index, current - age) != cookie) return std::nullopt;
  return kMss[index];
}

uint32_t SynCookie::Encode(uint32_t timestamp, const Choices& choices) {
  const uint32_t scale = choices.window_scale.value_or(kNoScale);
  const uint32_t bits = scale << 1 | uint32_t{choices.sack_permitted};
  const uint32_t encoded = (timestamp & ~uint32_t{0x1F}) | bits;
  return static_cast<int32_t>(encoded - timestamp) > 0 ? encoded - 32 : encoded;
}

SynCookie::Choices SynCookie::Decode(uint32_t echo) {
  const auto scale = static_cast<uint8_t>(echo >> 1 & 0xF);
  Choices choices{.sack_permitted = (echo & 1) != 0};
  if (scale != kNoScale) choices.window_scale = scale;
  return choices;
}

}  // namespace xtreme::tcp
