// SPDX-License-Identifier: Apache-2.0
//
// TcpBed: a ring on a software ConnectX in one network namespace, the kernel's TCP in another, a
// veth pair between them that loses, repeats and reorders frames as the test says.
//
// The library is the process' one, with its real clock, as the device's thread is. The calling
// thread is in the ring's namespace while the bed lives. Units: probabilities, by a seed.
// Threads: the test's.

#ifndef XTREME_TESTS_E2E_TCP_BED_H_
#define XTREME_TESTS_E2E_TCP_BED_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "api/xtreme.hpp"
#include "tests/net/namespace.h"

namespace xtreme::connectx {
class ImpairedWire;
class SoftwareConnectX;
struct Impairment;
}  // namespace xtreme::connectx

namespace xtreme::e2e {

class TcpBed {
 public:
  static constexpr char kKernelAddress[] = "10.9.0.1";
  static constexpr char kRingAddress[] = "10.9.0.2";

  TcpBed();
  ~TcpBed();
  TcpBed(const TcpBed&) = delete;
  TcpBed& operator=(const TcpBed&) = delete;

  // Both namespaces, the cable and the device; `seed` decides which frames faults hit, the device's
  // table has room for so many rules, and it has so much on-device memory.
  absl::Status Make(uint64_t seed, uint32_t flow_rules = 65'536,
                    uint64_t device_memory_bytes = 131'072);
  // From now on, in both directions.
  void Impair(const connectx::Impairment& impairment);

  // Of the wire, both directions together: frames "lost", "duplicated", "reordered".
  uint64_t Hit(const std::string& fault) const;

  // A ring of profile "dev", small enough for any machine.
  static RingOptions Options();
  // Opens and starts a ring; a test that cannot go on without it ends with a failure.
  std::unique_ptr<Ring> OpenRing(RingOptions options = Options());

  // Where kernel sockets are to be made.
  net::Namespace& kernel() { return *kernel_; }
  // Where the ring is.
  net::Namespace& ring() { return *ring_; }

 private:
  std::unique_ptr<net::Namespace> kernel_;
  std::unique_ptr<net::Namespace> ring_;
  std::unique_ptr<net::Namespace::Inside> inside_;
  std::unique_ptr<connectx::ImpairedWire> wire_;
  std::unique_ptr<connectx::SoftwareConnectX> device_;
};

// The next completion of this kind, those before it released; one of kind NONE, and a failure of
// the test, if none comes for a minute.
xtreme_completion Await(xtreme_ring ring, int kind);

}  // namespace xtreme::e2e

#endif  // XTREME_TESTS_E2E_TCP_BED_H_
