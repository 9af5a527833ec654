// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/rtt.h"

#include <cstdlib>

namespace xtreme::tcp {

void RttEstimator::Sample(base::Nanoseconds rtt, uint32_t expected_samples) {
  // A round trip of nothing is one below the clock's resolution. A day bounds what is shifted.
  const int64_t ns = std::clamp<int64_t>(rtt.count(), 1, base::Seconds(86'400).count());
  const int64_t sample = ns << kFractionBits;
  const int64_t n = std::max(expected_samples, 1u);
  if (!has_sample()) {
    srtt_ = sample;  // (2.2)
    rttvar_ = sample / 2;
  } else if (n == 1) {
    // The usual case without a division.
    rttvar_ += (std::abs(srtt_ - sample) - rttvar_) >> 2;
    srtt_ += (sample - srtt_) >> 3;
  } else {
    rttvar_ += (std::abs(srtt_ - sample) - rttvar_) / (4 * n);  // (2.3): beta is 1/4
    srtt_ += (sample - srtt_) / (8 * n);                        // alpha is 1/8
  }
  const int64_t deviation = std::max(options_->granularity.count(), rttvar_ * 4 >> kFractionBits);
  rto_ = Clamp((srtt_ >> kFractionBits) + deviation);
  backoff_ = 0;
}

}  // namespace xtreme::tcp
