// SPDX-License-Identifier: Apache-2.0
//
// ChallengeLimit: at most so many challenge ACKs in a second: RFC 5961 section 7.
//
// The invariant: each connection has its own, for of one that all share a stranger could learn, by
// using it up, whether two others are connected (CVE-2016-5696), and stop them from answering each
// other. One thread.
#ifndef XTREME_STACK_TCP_CHALLENGE_LIMIT_H_
#define XTREME_STACK_TCP_CHALLENGE_LIMIT_H_

#include <cstdint>

#include "stack/base/time.h"

namespace xtreme::tcp {

class ChallengeLimit {
 public:
  static constexpr uint16_t kPerSecond = 10;

  // Whether one may leave at `now`; it counts then.
  bool Take(base::Nanoseconds now) {
    const auto second = static_cast<uint16_t>(now / base::Seconds(1));
    if (second != second_) {
      second_ = second;
      left_ = kPerSecond;
    }
    if (left_ == 0) return false;
    --left_;
    return true;
  }

 private:
  uint16_t second_ = 0;  // of the ring's clock, modulo 2^16
  uint16_t left_ = kPerSecond;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_CHALLENGE_LIMIT_H_
