// SPDX-License-Identifier: Apache-2.0
//
// Start(): what it makes present, what it says, and what is counted afterwards.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <span>
#include <string>
#include <thread>
#include <vector>

#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/testing/ring_fixture.h"

namespace xtreme::engine::testing {
namespace {

using RingStartTest = RingTest;

constexpr size_t kPages = 512;
constexpr size_t kPageBytes = 4'096;

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

// A system that refuses to says of what.
TEST_F(RingStartTest, TheTablesOfTcpAreLockedToo) {
  options.max_connections = 4'096;
  Open();
  const std::string& line = ring->description();
  const size_t at = line.find("; memory: ");
  ASSERT_NE(at, std::string::npos) << line;
  const bool refused = line.find("TCP of ") != std::string::npos;
  size_t bytes = 0;
  for (const std::span<std::byte> piece : ring->tcp().memory()) {
    bytes += piece.size();
    const auto begin = reinterpret_cast<uintptr_t>(piece.data()) / kPageBytes * kPageBytes;
    const auto end = reinterpret_cast<uintptr_t>(piece.data()) + piece.size();
    std::vector<unsigned char> present((end - begin + kPageBytes - 1) / kPageBytes);
    ASSERT_EQ(mincore(reinterpret_cast<void*>(begin), end - begin, present.data()), 0);
    for (const unsigned char page : present) EXPECT_TRUE(refused || (page & 1) != 0);
  }
  // All but the indices by flow of SYNs and TIME-WAIT.
  EXPECT_GT(bytes, ring->tcp().memory_bytes() * 3 / 4);
  const double locked = std::stod(line.substr(at + 10)) * 1e6;
  EXPECT_TRUE(refused || locked >= static_cast<double>(bytes)) << line;
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
