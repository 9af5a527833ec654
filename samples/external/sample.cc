// SPDX-License-Identifier: Apache-2.0
//
// A program outside Xtreme's workspace: says which Xtreme it is linked with, what its ring would be
// made of and what the ring got, or why there is none. It asks for no privilege by itself.
//
//   sample INTERFACE [PROFILE]       settings also from XTREME_* variables; exits with 1: no ring

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "api/xtreme.hpp"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: sample INTERFACE [PROFILE]\n");
    return EXIT_FAILURE;
  }
  auto options = xtreme::RingOptions::Profile(argc > 2 ? argv[2] : "dev", argv[1]);
  options.FromEnvironment(environ);
  std::printf("xtreme %s\n%s", xtreme_version(), options.Print().c_str());
  auto ring = xtreme::Ring::Open(options);
  if (!ring) {
    std::printf("no ring (errno %d): %s\n", ring.error().code, ring.error().message.c_str());
    return EXIT_FAILURE;
  }
  std::printf("ring: %s\n", ring->Describe().c_str());
  return EXIT_SUCCESS;
}
