// SPDX-License-Identifier: Apache-2.0
//
// Start(): what it makes present, what it says, and what is counted afterwards.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>
#include <thread>

#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/testing/ring_fixture.h"

namespace xtreme::engine::testing {
namespace {

using RingStartTest = RingTest;

constexpr size_t kPages = 512;

// Faults once a page.
void TouchFreshPages() {
  void* fresh = mmap(nullptr, kPages * 4'096, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(fresh, kPages * 4'096, MADV_NOHUGEPAGE);
  for (size_t i = 0; i < kPages; ++i) static_cast<volatile char*>(fresh)[i * 4'096] = 1;
  munmap(fresh, kPages * 4'096);
}

TEST_F(RingStartTest, TheLineOfTheRingSaysWhatWasLockedAndWhyNotMore) {
  Open(/*start=*/false);
  EXPECT_EQ(ring->description().find("memory: "), std::string::npos);
  ASSERT_TRUE(ring->Start().ok());
  const std::string& line = ring->description();
  EXPECT_NE(line.find("; memory: "), std::string::npos) << line;
  EXPECT_NE(line.find(" MB locked"), std::string::npos) << line;
  EXPECT_NE(line.find("NUMA node of the device not known"), std::string::npos) << line;
}

TEST_F(RingStartTest, APageFaultOfTheOwnerAfterStartIsCounted) {
  clock_period = base::Milliseconds(1);
  Open(/*start=*/false);
  TouchFreshPages();
  ASSERT_TRUE(ring->Start().ok());
  PollAll();
  EXPECT_LT(Counter("ring", "page_faults"), kPages);
  TouchFreshPages();
  while (Counter("ring", "page_faults") < kPages) PollAll();
}

TEST_F(RingStartTest, TheFaultsAreThoseOfWhoeverOwnsTheRing) {
  clock_period = base::Milliseconds(1);
  Open();
  std::thread owner([this] {
    ring->Adopt();
    TouchFreshPages();
    while (Counter("ring", "page_faults") < kPages) PollAll();
  });
  owner.join();
  ring->Adopt();
}

TEST_F(RingStartTest, ASecondStartIsRefused) {
  Open();
  EXPECT_EQ(ring->Start().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace xtreme::engine::testing
