// SPDX-License-Identifier: Apache-2.0
//
// What both ends of the differential test know: ports, and bytes that are told apart.

#ifndef XTREME_TESTS_FACES_DIFFERENTIAL_H_
#define XTREME_TESTS_FACES_DIFFERENTIAL_H_

#include <cstdint>

namespace xtreme::faces {

inline constexpr int kFencePort = 7001;
inline constexpr int kPeerTcpPort = 7002;
inline constexpr int kPeerUdpPort = 7003;
inline constexpr int kSubjectTcpPort = 7004;
inline constexpr int kSubjectUdpPort = 7005;
// Of sequences_subject.
inline constexpr uint32_t kCallsOfASequence = 40;
inline constexpr int kPortsOfASequence = 16;
inline constexpr int kPeerStrayPort = 7008;
// Of crossing_subject.
inline constexpr int kFirstCrossingPort = 8'000;
inline constexpr const char* kDifferentialGroup = "239.3.3.3";

// At least `length` bytes, at most 70,000, which begin differently for each length.
inline const char* Pattern(int length) {
  static char bytes[140'001];
  if (bytes[1] == 0) {
    uint32_t state = 1;
    for (char& each : bytes)
      each = static_cast<char>((state = state * 1'664'525 + 1'013'904'223) >> 24);
    bytes[1] |= 1;
  }
  return bytes + length;
}

}  // namespace xtreme::faces

#endif  // XTREME_TESTS_FACES_DIFFERENTIAL_H_
