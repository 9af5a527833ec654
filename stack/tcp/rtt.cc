// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/rtt.h"

namespace xtreme::tcp {

void RttEstimator::SampleOtherwise(base::Nanoseconds rtt, uint32_t expected_samples) {
  const int64_t sample = Bounded(rtt);
  const int64_t n = std::max(expected_samples, 1u);
  if (!has_sample()) {
    srtt_ = sample;  // (2.2)
    rttvar_ = sample / 2;
  } else {
    rttvar_ += (std::abs(srtt_ - sample) - rttvar_) / (4 * n);  // (2.3): beta is 1/4
    srtt_ += (sample - srtt_) / (8 * n);                        // alpha is 1/8
  }
  backoff_ = 0;
}

}  // namespace xtreme::tcp
