// SPDX-License-Identifier: Apache-2.0
//
// The card's table of send rates: queues name an entry, and equal rates share one.
//
// Invariant: an entry exists as long as somebody holds it. Index 0 is "not paced".
// Units: rates as in struct Rate. Thread: the device's lock.
// Spec: PRM SET_PP_RATE_LIMIT; mlx5dv_pp_alloc(3).

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_RATE_TABLE_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_RATE_TABLE_H_

#include <cstdint>
#include <vector>

#include "tools/connectx/device/requests.h"

namespace xtreme::connectx {

class RateTable {
 public:
  // At most `limit` different rates, each of `least_kbps` or more.
  RateTable(uint32_t limit, uint32_t least_kbps) : limit_(limit), least_kbps_(least_kbps) {}

  // Takes an entry; a `dedicated` one is shared with nobody. EINVAL: the rate is outside the
  // card's range. ENOSPC: the table is full.
  int Acquire(const Rate& rate, bool dedicated, uint16_t* index);
  // EINVAL: nobody holds it. Index 0 may be released.
  int Release(uint16_t index);

 private:
  struct Entry {
    Rate rate;
    bool dedicated = false;
    uint32_t holders = 0;
  };

  const uint32_t limit_;
  const uint32_t least_kbps_;
  std::vector<Entry> entries_;  // Entry n has index n + 1.
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_RATE_TABLE_H_
