// SPDX-License-Identifier: Apache-2.0
//
// The devices of a member: a software ConnectX whose ports are on one shared segment, through wires
// that lose, repeat, reorder and spoil frames as the member says.
//
// Thread: the member's.

#ifndef XTREME_TESTS_SOAK_WIRES_H_
#define XTREME_TESTS_SOAK_WIRES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace xtreme::connectx {
class ImpairedWire;
class SoftwareConnectX;
struct Impairment;
}  // namespace xtreme::connectx

namespace xtreme::soak {

class Wires {
 public:
  Wires();
  ~Wires();
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;

  absl::Status Make(int member, const std::string& segment, uint64_t seed);

  size_t size() const { return wires_.size(); }
  // All ports, from now on, in both directions; but only what goes is spoilt: of two bits in what
  // one checksum covers it may see neither.
  void Impair(const connectx::Impairment& impairment);
  void Plug(size_t port, bool plugged);

  // Frames that wires and devices dropped or spoilt, on their way out and in.
  uint64_t LostOfSent() const;
  uint64_t LostOfReceived() const;
  // Those that no rule of a device wanted; that came to the second port for its own address; that
  // were sent twice; that are under way.
  uint64_t Unwanted() const { return Sum({"steer_missed"}); }
  uint64_t Misdirected() const { return Sum({"unicast_rcv"}, /*first=*/1); }
  uint64_t RepeatedOfSent() const { return Sum({"tx_duplicated"}); }
  uint64_t RepeatedOfReceived() const { return Sum({"rx_duplicated"}); }
  uint64_t Held() const { return Sum({"held"}); }
  // What the rings did that a card punishes; empty: nothing.
  std::string Violations() const;

 private:
  // Of all counters, of the ports from `first` on, that have one of these in their name.
  uint64_t Sum(const std::vector<std::string_view>& names, size_t first = 0) const;

  std::vector<std::unique_ptr<connectx::ImpairedWire>> wires_;
  std::unique_ptr<connectx::SoftwareConnectX> devices_;
};

}  // namespace xtreme::soak

#endif  // XTREME_TESTS_SOAK_WIRES_H_
