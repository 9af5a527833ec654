// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/residency.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "xtreme/host/thread_faults.h"

namespace xtreme::host {
namespace {

constexpr size_t kPages = 64;
constexpr size_t kBytes = kPages * 4'096;

// Mapped and never touched.
class Fresh {
 public:
  Fresh()
      : start_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Fresh() { munmap(start_, kBytes); }
  std::span<std::byte> memory() const { return {static_cast<std::byte*>(start_), kBytes}; }
  size_t resident_pages() const {
    std::array<unsigned char, kPages> present{};
    mincore(start_, kBytes, present.data());
    size_t pages = 0;
    for (const unsigned char page : present) pages += page & 1;
    return pages;
  }

 private:
  void* const start_;
};

int Succeed(const void*, size_t) { return 0; }
int Refuse(const void*, size_t) {
  errno = ENOMEM;
  return -1;
}

TEST(ResidencyTest, LocksWhatItKeepsAndSaysHowMuch) {
  const Fresh fresh;
  Residency residency({.node = std::nullopt, .lock = &Succeed});
  residency.Keep("pool", fresh.memory());
  EXPECT_EQ(residency.locked_bytes(), kBytes);
  EXPECT_EQ(residency.ToString(), "memory: 1 MB locked, NUMA node of the device not known");
}

TEST(ResidencyTest, WhatMayNotBeLockedIsTouchedAndSaidInTheLine) {
  const Fresh fresh;
  EXPECT_EQ(fresh.resident_pages(), 0u);
  Residency residency({.node = std::nullopt, .lock = &Refuse});
  residency.Keep("pool", fresh.memory());
  EXPECT_EQ(fresh.resident_pages(), kPages);
  EXPECT_EQ(residency.locked_bytes(), 0u);
  const std::string line = residency.ToString();
  EXPECT_NE(line.find("memory: 0 MB locked"), std::string::npos) << line;
  EXPECT_NE(line.find("pool of 1 MB touched but not locked (Cannot allocate memory, errno 12; "
                      "RLIMIT_MEMLOCK "),
            std::string::npos)
      << line;
}

TEST(ResidencyTest, ANodeThatIsNotThereIsARefusalInTheLine) {
  const Fresh fresh;
  Residency residency({.node = 63, .lock = &Succeed});
  residency.Keep("pool", fresh.memory());
  EXPECT_NE(residency.ToString().find("pool not moved to node 63"), std::string::npos);
  EXPECT_EQ(residency.locked_bytes(), kBytes);
}

TEST(ResidencyTest, WholeBlocksBecomeHugepagesWhereThatIsWanted) {
  constexpr size_t kBlock = 2 << 20;
  constexpr size_t kBlocks = 4;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE.
  void* const start = mmap(nullptr, kBlocks * kBlock, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const std::span<std::byte> memory(static_cast<std::byte*>(start), kBlocks * kBlock);
  Residency plain({.node = std::nullopt, .lock = &Succeed});
  plain.Keep("tables", memory);
  EXPECT_EQ(plain.merged_bytes(), 0u);
  memory.back() = std::byte{7};
  Residency merging({.node = std::nullopt, .merge = true, .lock = &Succeed});
  merging.Keep("tables", memory);
  EXPECT_EQ(memory.back(), std::byte{7});
  EXPECT_EQ(merging.ToString().find(" in hugepages") != std::string::npos,
            merging.merged_bytes() > 0);
  // Others: whether this kernel does it at all.
  void* const other = mmap(nullptr, 2 * kBlock, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const block = reinterpret_cast<uint8_t*>(
      (reinterpret_cast<uintptr_t>(other) + kBlock - 1) & ~(kBlock - 1));
  *block = 1;
  const bool possible = madvise(block, kBlock, kCollapse) == 0;
  if (possible) {
    EXPECT_GT(merging.merged_bytes(), 0u);
  }
  munmap(other, 2 * kBlock);
  munmap(start, memory.size());
}

TEST(ResidencyTest, ObjectsAreLockedByTheirPagesAndKeepTheirContents) {
  std::array<std::byte, 100> object;
  object.fill(std::byte{7});
  Residency residency({.node = std::nullopt, .lock = &Refuse});
  residency.Keep("object", object);
  EXPECT_EQ(object[99], std::byte{7});
  Residency locking({.node = std::nullopt, .lock = &Succeed});
  locking.Keep("object", object);
  EXPECT_GE(locking.locked_bytes(), 4'096u);
  EXPECT_LE(locking.locked_bytes(), 8'192u);
}

TEST(ResidencyTest, AnInterfaceWithoutADeviceHasNoKnownNode) {
  EXPECT_EQ(NumaNodeOf("lo"), std::nullopt);
}

TEST(ResidencyTest, OfAVlanTheNodeIsThatOfTheDeviceBelow) {
  const auto sysfs = std::filesystem::path(testing::TempDir()) / "residency_test_sys";
  const auto net = sysfs / "class/net";
  std::filesystem::create_directories(net / "eth2/device");
  std::ofstream(net / "eth2/device/numa_node") << "1\n";
  std::filesystem::create_directories(net / "eth2.100");
  std::filesystem::create_directory_symlink("../eth2", net / "eth2.100/lower_eth2");
  EXPECT_EQ(NumaNodeOf("eth2", sysfs), 1);
  EXPECT_EQ(NumaNodeOf("eth2.100", sysfs), 1);
  EXPECT_EQ(NumaNodeOf("absent", sysfs), std::nullopt);
  std::filesystem::remove_all(sysfs);
}

TEST(ResidencyTest, ATouchedStackFaultsNoMoreAndItsFaultsAreSeenByAnotherThread) {
  constexpr size_t kStack = 256 << 10;
  uint64_t touching = 0;
  uint64_t using_it = ~uint64_t{0};
  std::thread([&] {
    const ThreadFaults faults(gettid());
    const uint64_t before = faults.Read().value_or(0);
    EXPECT_EQ(TouchStack(kStack).size(), kStack);
    const uint64_t between = faults.Read().value_or(0);
    EXPECT_EQ(TouchStack(kStack / 2).size(), kStack / 2);
    touching = between - before;
    using_it = faults.Read().value_or(0) - between;
  }).join();
  EXPECT_GE(touching, kStack / 4'096 / 2);
  // A sanitizer's shadow of the stack may still fault: a page for each eight.
  EXPECT_LT(using_it, kStack / 4'096 / 4);
}

TEST(ResidencyTest, AStackIsNotTouchedBelowItsLimit) {
  size_t touched = 0;
  std::thread([&] { touched = TouchStack(size_t{1} << 40).size(); }).join();
  EXPECT_GT(touched, 0u);
}

TEST(ResidencyTest, AThreadThatIsGoneHasNoFaults) {
  EXPECT_EQ(ThreadFaults(1 << 30).Read(), std::nullopt);
}

}  // namespace
}  // namespace xtreme::host
