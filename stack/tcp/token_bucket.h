// SPDX-License-Identifier: Apache-2.0
//
// A token bucket: at most `burst` at once and `per_second` in the long run. For SYNs (RFC 4987
// section 3.7), challenge acknowledgements (RFC 5961 section 7) and whatever else others cause.
#ifndef XTREME_STACK_TCP_TOKEN_BUCKET_H_
#define XTREME_STACK_TCP_TOKEN_BUCKET_H_

#include <algorithm>
#include <cstdint>

#include "stack/base/time.h"

namespace xtreme::tcp {

class TokenBucket {
 public:
  // Full at first. `per_second` is 1 to 10^9; 0 of `burst` lets nothing through.
  TokenBucket(uint32_t per_second, uint32_t burst)
      : per_token_(base::Seconds(1) / per_second), capacity_(per_token_ * burst) {}

  // Takes one token, if there is one. `now` does not go backwards.
  bool Take(base::Nanoseconds now) {
    // The bucket is kept as the instant at which it was, or would have been, empty.
    empty_at_ = base::Later(empty_at_, now - capacity_);
    if (now - empty_at_ < per_token_) return false;
    empty_at_ += per_token_;
    return true;
  }

 private:
  base::Nanoseconds per_token_;
  base::Nanoseconds capacity_;
  base::Nanoseconds empty_at_{INT64_MIN / 2};
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_TOKEN_BUCKET_H_
