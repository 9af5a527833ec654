// SPDX-License-Identifier: Apache-2.0
//
// Hardware times, which rings give on CLOCK_MONOTONIC, on the clock that programs know.

#ifndef XTREME_API_SOCKETS_REAL_TIME_H_
#define XTREME_API_SOCKETS_REAL_TIME_H_

#include <cstdint>
#include <ctime>

namespace xtreme::sockets {

// CLOCK_REALTIME at `monotonic_ns`, by the difference of the two clocks now; 0 of 0.
inline timespec RealTime(int64_t monotonic_ns) {
  if (monotonic_ns == 0) return {};
  constexpr int64_t kSecond = 1'000'000'000;
  timespec real{};
  timespec monotonic{};
  clock_gettime(CLOCK_REALTIME, &real);
  clock_gettime(CLOCK_MONOTONIC, &monotonic);
  const int64_t offset = (real.tv_sec - monotonic.tv_sec) * kSecond + real.tv_nsec -
                         monotonic.tv_nsec;
  const int64_t time = monotonic_ns + offset;
  return {.tv_sec = time / kSecond, .tv_nsec = time % kSecond};
}

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_REAL_TIME_H_
