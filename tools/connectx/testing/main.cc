// SPDX-License-Identifier: Apache-2.0
//
// GoogleTest's main for tests on a test bed: it first gives the process a network of its own, so
// that the bed's interfaces need no privilege and tests that run at the same time do not meet.

#include <cstdio>
#include <cstdlib>

#include "gtest/gtest.h"
#include "tests/net/namespace.h"
#include "tools/connectx/testing/own_network.h"

int main(int argc, char** argv) {
  // Before anything makes a thread.
  const auto network = xtreme::connectx::MakeOwnNetwork();
  if (!network.ok()) {
    std::fprintf(stderr, "connectx_test: %s\n", network.status().ToString().c_str());
    return EXIT_FAILURE;
  }
  const xtreme::net::Namespace::Inside inside(**network);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
