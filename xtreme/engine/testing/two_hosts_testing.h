// SPDX-License-Identifier: Apache-2.0
//
// For tests of the engine beside a real kernel: two network namespaces joined by a cable, the test
// inside the first of them, and engines that take their state from its kernel and send by a NIC in
// memory.
//
// Threads: the test's, and the engine's control thread.

#ifndef XTREME_XTREME_ENGINE_TESTING_TWO_HOSTS_TESTING_H_
#define XTREME_XTREME_ENGINE_TESTING_TWO_HOSTS_TESTING_H_

#include <memory>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tests/net/namespace.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/testing/memory_nic.h"

namespace xtreme::engine::testing {

// An engine on the kernel of the calling thread's namespace. `nic`: where the NIC it opens with its
// first ring is told; null: nowhere. It outlives the engine.
absl::StatusOr<std::unique_ptr<Engine>> MakeEngineBesideKernel(MemoryNic** nic);

class TwoHostsTest : public ::testing::Test {
 protected:
  // Our interface is xt0, 10.0.0.1/24; theirs is "peer", 10.0.0.2/24.
  void SetUp() override;
  void TearDown() override;

  std::unique_ptr<net::Namespace> ours_;
  std::unique_ptr<net::Namespace> theirs_;
  std::unique_ptr<net::Namespace::Inside> inside_;
};

}  // namespace xtreme::engine::testing

#endif  // XTREME_XTREME_ENGINE_TESTING_TWO_HOSTS_TESTING_H_
