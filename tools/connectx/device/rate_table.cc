// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/rate_table.h"

#include <algorithm>
#include <cerrno>

namespace xtreme::connectx {

int RateTable::Acquire(const Rate& rate, bool dedicated, uint16_t* index) {
  *index = 0;
  if (rate.kbps < least_kbps_ || rate.kbps > kMaxRateKbps) return EINVAL;
  const auto equal = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.holders != 0 && !entry.dedicated && !dedicated && entry.rate == rate;
  });
  const auto unused = std::find_if(entries_.begin(), entries_.end(),
                                   [](const Entry& entry) { return entry.holders == 0; });
  auto entry = equal != entries_.end() ? equal : unused;
  if (entry == entries_.end()) {
    if (entries_.size() == limit_) return ENOSPC;
    entry = entries_.insert(entries_.end(), Entry{});
  }
  if (entry->holders++ == 0) {
    entry->rate = rate;
    entry->dedicated = dedicated;
  }
  *index = static_cast<uint16_t>(entry - entries_.begin() + 1);
  return 0;
}

int RateTable::Release(uint16_t index) {
  if (index == 0) return 0;
  if (index > entries_.size() || entries_[index - 1].holders == 0) return EINVAL;
  --entries_[index - 1].holders;
  return 0;
}

}  // namespace xtreme::connectx
