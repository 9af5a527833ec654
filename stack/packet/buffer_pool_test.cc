// SPDX-License-Identifier: Apache-2.0

#include "stack/packet/buffer_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"

namespace xtreme::packet {
namespace {

using ::testing::HasSubstr;

BufferPool::Handle MakePool(uint32_t buffers) {
  auto pool = BufferPool::Create(
      {.buffers = buffers, .buffer_bytes = 256, .hugepages = BufferPool::Hugepages::kNever});
  EXPECT_TRUE(pool.ok()) << pool.status();
  return std::move(*pool);
}

void InAnotherThread(const std::function<void()>& what) { std::thread(what).join(); }

TEST(BufferPoolTest, RefusesOptionsOutOfRangeAndNamesThem) {
  EXPECT_THAT(BufferPool::Create({.buffers = 0}).status().message(), HasSubstr("0 buffers asked"));
  EXPECT_THAT(BufferPool::Create({.buffer_bytes = 100}).status().message(),
              HasSubstr("100 bytes asked"));
  EXPECT_THAT(BufferPool::Create({.buffer_bytes = 128, .headroom = 128}).status().message(),
              HasSubstr("headroom of 128"));
}

TEST(BufferPoolTest, RequiredHugepagesThatAreNotThereAreAnErrorWithNumbers) {
  auto pool = BufferPool::Create({.buffers = 1u << 23,
                                  .buffer_bytes = 65536,
                                  .hugepages = BufferPool::Hugepages::kRequire});
  ASSERT_FALSE(pool.ok());
  EXPECT_THAT(pool.status().message(), HasSubstr("262144 hugepages of 2 MB asked"));
}

TEST(BufferPoolTest, OnlyReferenceIsReleasedAtOnceAndNoOther) {
  const auto pool = MakePool(1);
  Buffer* const buffer = pool->Acquire();
  EXPECT_EQ(buffer->pool->context(), nullptr);
  int context = 0;
  pool->SetContext(&context);
  EXPECT_EQ(buffer->pool->context(), &context);
  BufferPool::AddReferenceByOwner(buffer);
  EXPECT_FALSE(BufferPool::ReleaseOnlyReference(buffer)) << "two of the owner";
  EXPECT_FALSE(BufferPool::ReleaseByOwner(buffer));
  BufferPool::AddReferenceByForeign(buffer);
  EXPECT_FALSE(BufferPool::ReleaseOnlyReference(buffer)) << "and one of another";
  EXPECT_FALSE(BufferPool::ReleaseByForeign(buffer));
  EXPECT_EQ(pool->free_count(), 0u);
  EXPECT_TRUE(BufferPool::ReleaseOnlyReference(buffer));
  EXPECT_EQ(pool->free_count(), 1u);
  Buffer* const lent = pool->Acquire();
  BufferPool::Lend(lent, 7);
  EXPECT_FALSE(BufferPool::ReleaseOnlyReference(lent)) << "lent";
  EXPECT_TRUE(BufferPool::ReleaseByOwner(lent));
}

// Counts, and gives `memory`, of which `bytes` can be written.
struct Program {
  explicit Program(size_t bytes, size_t offset = 0)
      : mapped(static_cast<uint8_t*>(mmap(nullptr, kMapped, PROT_NONE,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        memory(mapped + offset) {
    EXPECT_EQ(mprotect(mapped, bytes, PROT_READ | PROT_WRITE), 0);
  }
  ~Program() { munmap(mapped, kMapped); }

  BufferPool::Source Source() {
    return {.allocate = [](void* program, size_t bytes) -> void* {
              static_cast<Program*>(program)->asked = bytes;
              return static_cast<Program*>(program)->memory;
            },
            .release = [](void* program, void* memory) {
              auto* const self = static_cast<Program*>(program);
              self->released += memory == self->memory;
            },
            .context = this};
  }
  absl::StatusOr<BufferPool::Handle> MakePool(uint32_t buffers) {
    return BufferPool::Create({.buffers = buffers,
                               .buffer_bytes = 256,
                               .hugepages = BufferPool::Hugepages::kRequire,
                               .source = Source()});
  }

  static constexpr size_t kMapped = 1 << 16;
  uint8_t* const mapped;
  uint8_t* memory;
  size_t asked = 0;
  int released = 0;
};

TEST(BufferPoolTest, MemoryOfASourceIsUsedFromItsFirstPageOnAndReleasedWithTheLastBuffer) {
  Program program(3 * 4096, 40);
  auto pool = program.MakePool(32);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(program.asked, 3u * 4096);
  EXPECT_EQ((*pool)->region(), program.mapped + 4096);
  EXPECT_EQ((*pool)->region_bytes(), 2u * 4096);
  EXPECT_THAT((*pool)->description(), HasSubstr("in memory of the program's"));
  Buffer* const held = (*pool)->Acquire();
  pool->reset();
  EXPECT_EQ(program.released, 0);
  BufferPool::Release(held);
  EXPECT_EQ(program.released, 1);
}

TEST(BufferPoolTest, MemoryOfASourceThatCannotBeWrittenToItsEndIsRefusedAndReleased) {
  Program program(2 * 4096 - 1);
  const auto pool = program.MakePool(33);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(pool.status().message(), HasSubstr("of what it gave 8192 can be written"));
  EXPECT_EQ(program.released, 1);
}

TEST(BufferPoolTest, ASourceWithoutMemoryIsAnErrorAndNothingIsReleased) {
  Program program(4096);
  program.memory = nullptr;
  const auto pool = program.MakePool(16);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(pool.status().message(), HasSubstr("8192 bytes asked of the program, it has none"));
  EXPECT_EQ(program.released, 0);
}

TEST(BufferPoolTest, ASourceThatOnlyAllocatesIsRefused) {
  Program program(4096);
  BufferPool::Source source = program.Source();
  source.release = nullptr;
  EXPECT_THAT(BufferPool::Create({.buffers = 1, .source = source}).status().message(),
              HasSubstr("a source that only allocates"));
  EXPECT_EQ(program.asked, 0u);
}

TEST(BufferPoolTest, MemoryOfTheCallersIsOneBufferThatIsNotTouchedAndReleasedWithTheLastReference) {
  std::string text = "as it was";
  std::string* released = nullptr;
  const auto release = [](void* told, void* memory) {
    auto** const to = static_cast<std::string**>(told);
    *to = static_cast<std::string*>(memory);
  };
  auto pool = BufferPool::CreateOver(&text, sizeof text, release, &released);
  EXPECT_EQ(pool->capacity(), 1u);
  EXPECT_EQ(pool->region_bytes(), sizeof text);
  Buffer* const buffer = pool->Acquire();
  EXPECT_EQ(static_cast<void*>(buffer->data), &text);
  EXPECT_EQ(pool->Acquire(), nullptr);
  BufferPool::AddReferenceByOwner(buffer);
  EXPECT_FALSE(BufferPool::ReleaseByOwner(buffer));
  pool.reset();
  EXPECT_EQ(released, nullptr) << "a reference is left";
  BufferPool::Release(buffer);
  EXPECT_EQ(released, &text);
  EXPECT_EQ(text, "as it was");
  BufferPool::CreateOver(&text, sizeof text, nullptr, nullptr).reset();
}

TEST(BufferPoolTest, SaysWhyItHasNoHugepages) {
  EXPECT_THAT(MakePool(4)->description(), HasSubstr("4 KB pages (not asked for)"));
}

// proc_pid_smaps(5): flags of the mapping that begins at `start`, each behind a space.
std::string FlagsOfMapping(const void* start) {
  std::ifstream maps("/proc/self/smaps");
  const std::string begin = absl::StrFormat("%x-", reinterpret_cast<uintptr_t>(start));
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    inside |= line.starts_with(begin);
    if (inside && line.starts_with("VmFlags:")) return line;
  }
  return "";
}

TEST(BufferPoolTest, PagesThatAreToBeMergedBeginAtAHugepageAndTheKernelIsAsked) {
  constexpr uint32_t kBuffers = 3 << 10;
  auto pool = BufferPool::Create({.buffers = kBuffers, .buffer_bytes = 2048});
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_THAT((*pool)->description(),
              HasSubstr((*pool)->hugepages() ? "hugepages" : "the kernel is asked to merge them"));
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*pool)->region()) % (2 << 20), 0u);
  EXPECT_GE((*pool)->region_bytes(), size_t{kBuffers} * 2048);
  if (!(*pool)->hugepages() && std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
    EXPECT_THAT(FlagsOfMapping((*pool)->region()), HasSubstr(" hg"));
  }
}

TEST(BufferPoolTest, AcquiredBufferIsEmptyBehindTheHeadroom) {
  auto pool = BufferPool::Create({.buffers = 2, .buffer_bytes = 256, .headroom = 64});
  ASSERT_TRUE(pool.ok());
  Buffer* buffer = (*pool)->Acquire();
  EXPECT_EQ(buffer->data, (*pool)->slot(buffer) + 64);
  EXPECT_EQ(buffer->length, 0u);
  EXPECT_EQ(buffer->next, nullptr);
  EXPECT_EQ((*pool)->payload_bytes(), 192u);
  BufferPool::ReleaseByOwner(buffer);
}

TEST(BufferPoolTest, WhatWasInABufferIsGoneWhenItIsTakenAgain) {
  auto pool = MakePool(1);
  Buffer* const buffer = pool->Acquire();
  uint8_t* const empty = buffer->data;
  const auto use = [&] {
    buffer->data += 14;
    buffer->length = 60;
    buffer->next = buffer;
    BufferPool::ReleaseByOwner(buffer);
  };
  use();
  ASSERT_EQ(pool->Acquire(), buffer);
  EXPECT_EQ(buffer->data, empty);
  EXPECT_EQ(buffer->length, 0u);
  EXPECT_EQ(buffer->next, nullptr);
  use();
  const uint32_t taken = pool->AcquireEach(1, [](Buffer* one) {
    EXPECT_EQ(one->next, nullptr);
    EXPECT_EQ(one->owner_references, 1u);
  });
  EXPECT_EQ(taken, 1u);
  use();
  ASSERT_TRUE(pool->AcquireAll<1>([](Buffer* one) { EXPECT_EQ(one->next, nullptr); }));
  BufferPool::ReleaseByOwner(buffer);
}

TEST(BufferPoolTest, ManyAtOnceAreThoseThatWouldComeOneByOne) {
  auto pool = MakePool(16);
  std::vector<Buffer*> singly, each, all;
  for (int i = 0; i < 12; ++i) singly.push_back(pool->Acquire());
  for (int i = 11; i >= 0; --i) BufferPool::ReleaseByOwner(singly[i]);
  EXPECT_EQ(pool->AcquireEach(12, [&](Buffer* buffer) { each.push_back(buffer); }), 12u);
  EXPECT_EQ(each, singly);
  EXPECT_FALSE(pool->AcquireAll<5>([](Buffer*) { FAIL() << "There are four."; }));
  for (int i = 11; i >= 0; --i) BufferPool::ReleaseByOwner(each[i]);
  EXPECT_TRUE(pool->AcquireAll<12>([&](Buffer* buffer) { all.push_back(buffer); }));
  EXPECT_EQ(all, singly);
  EXPECT_EQ(pool->free_count(), 4u);
  EXPECT_EQ(pool->counters().low_water, 4u);
  EXPECT_TRUE(pool->AcquireAll<4>([&](Buffer* buffer) { all.push_back(buffer); }));
  EXPECT_EQ(pool->counters().low_water, 0u);
  for (Buffer* buffer : all) {
    EXPECT_EQ(buffer->next, nullptr);
    EXPECT_EQ(buffer->owner_references, 1u);
    BufferPool::ReleaseByOwner(buffer);
  }
}

TEST(BufferPoolTest, RemembersHowFewWereFree) {
  auto pool = MakePool(4);
  EXPECT_EQ(pool->counters().low_water, 4u);
  std::vector<Buffer*> taken;
  EXPECT_EQ(pool->AcquireEach(3, [&](Buffer* buffer) { taken.push_back(buffer); }), 3u);
  EXPECT_EQ(pool->counters().low_water, 1u);
  for (Buffer* buffer : taken) BufferPool::ReleaseByOwner(buffer);
  EXPECT_EQ(pool->free_count(), 4u);
  EXPECT_EQ(pool->counters().low_water, 1u);
  taken.clear();
  EXPECT_EQ(pool->AcquireEach(9, [&](Buffer* buffer) { taken.push_back(buffer); }), 4u);
  EXPECT_EQ(pool->counters().low_water, 0u);
  EXPECT_EQ(pool->counters().exhausted, 1u);
  for (Buffer* buffer : taken) BufferPool::ReleaseByOwner(buffer);
}

TEST(BufferPoolTest, EmptyPoolIsAResultAndCounted) {
  auto pool = MakePool(2);
  Buffer* first = pool->Acquire();
  Buffer* second = pool->Acquire();
  EXPECT_EQ(pool->Acquire(), nullptr);
  EXPECT_EQ(pool->counters().exhausted, 1u);
  EXPECT_EQ(pool->counters().low_water, 0u);
  BufferPool::ReleaseByOwner(first);
  EXPECT_EQ(pool->Acquire(), first);
  BufferPool::ReleaseByOwner(first);
  BufferPool::ReleaseByOwner(second);
}

TEST(BufferPoolTest, EveryLinkOfAChainHasItsOwnCount) {
  auto pool = MakePool(3);
  std::array<Buffer*, 3> links = {pool->Acquire(), pool->Acquire(), pool->Acquire()};
  for (int i = 0; i < 3; ++i) links[i]->length = 10;
  links[0]->next = links[1];
  links[1]->next = links[2];
  EXPECT_EQ(ChainLength(links[0]), 30u);
  BufferPool::AddReference(links[1]);
  BufferPool::ReleaseChain(links[0]);
  EXPECT_EQ(pool->free_count(), 2u);  // The middle link is held by itself.
  EXPECT_TRUE(BufferPool::Release(links[1]));
  EXPECT_EQ(pool->free_count(), 3u);
}

TEST(BufferPoolTest, ForeignReleaseOfTheOnlyReferenceComesBackOnceDrained) {
  auto pool = MakePool(1);
  Buffer* buffer = pool->Acquire();
  InAnotherThread([&] { BufferPool::Release(buffer); });
  EXPECT_TRUE(pool->HasReturns());
  EXPECT_EQ(pool->free_count(), 0u);
  EXPECT_EQ(pool->DrainReturns(), 1u);
  EXPECT_FALSE(pool->HasReturns());
  EXPECT_EQ(pool->free_count(), 1u);
}

TEST(BufferPoolTest, ForeignReleaseWhileTheOwnerHoldsFreesNothing) {
  auto pool = MakePool(1);
  Buffer* buffer = pool->Acquire();
  BufferPool::AddReference(buffer);
  InAnotherThread([&] { BufferPool::Release(buffer); });
  EXPECT_EQ(pool->DrainReturns(), 0u);
  EXPECT_TRUE(BufferPool::Release(buffer));
  EXPECT_EQ(pool->free_count(), 1u);
}

TEST(BufferPoolTest, OwnerReleasesFirstForeignLast) {
  auto pool = MakePool(1);
  Buffer* buffer = pool->Acquire();
  InAnotherThread([&] { BufferPool::AddReference(buffer); });
  EXPECT_FALSE(BufferPool::Release(buffer));
  InAnotherThread([&] { EXPECT_TRUE(BufferPool::Release(buffer)); });
  EXPECT_EQ(pool->DrainReturns(), 1u);
}

TEST(BufferPoolTest, ReferenceAcquiredElsewhereMayBeReleasedByTheOwner) {
  auto pool = MakePool(1);
  Buffer* buffer = pool->Acquire();
  InAnotherThread([&] { BufferPool::AddReference(buffer); });
  EXPECT_FALSE(BufferPool::Release(buffer));
  EXPECT_TRUE(BufferPool::Release(buffer));
  EXPECT_EQ(pool->DrainReturns(), 1u);
  EXPECT_EQ(pool->Acquire(), buffer);
  BufferPool::Release(buffer);
}

TEST(BufferPoolTest, OutlivesItsOwnerUntilTheLastForeignRelease) {
  auto pool = MakePool(4);
  Buffer* held = pool->Acquire();
  Buffer* shared = pool->Acquire();
  Buffer* returned = pool->Acquire();
  memcpy(held->data, "tick", 5);
  held->length = 5;
  InAnotherThread([&] {
    BufferPool::AddReference(shared);
    BufferPool::Release(returned);
  });
  BufferPool::Release(shared);
  pool.reset();
  EXPECT_STREQ(reinterpret_cast<char*>(held->data), "tick");
  EXPECT_TRUE(BufferPool::Release(shared));
  EXPECT_TRUE(BufferPool::Release(held));  // Frees the pool: address sanitizer would see a leak.
}

// One that was returned is free first; one that others hold is held by one more.
TEST(BufferPoolTest, WhatHoldGivesStaysWhenEverybodyElseHasReleasedIt) {
  auto pool = MakePool(2);
  Buffer* const lent = pool->Acquire();
  Buffer* const shared = pool->Acquire();
  BufferPool::AddReferenceByForeign(lent);
  BufferPool::AddReferenceByForeign(shared);
  BufferPool::ReleaseByOwner(lent);
  BufferPool::ReleaseByOwner(shared);
  EXPECT_TRUE(BufferPool::ReleaseByForeign(lent));
  EXPECT_EQ(pool->Hold(), lent);
  EXPECT_EQ(pool->Hold(), lent) << "the caller's counts, too";
  EXPECT_FALSE(BufferPool::ReleaseByOwner(lent));
  BufferPool::AddReferenceByForeign(lent);
  EXPECT_FALSE(BufferPool::ReleaseByOwner(lent));
  EXPECT_EQ(pool->Hold(), lent) << "others hold it";
  EXPECT_FALSE(BufferPool::ReleaseByForeign(lent));
  pool.reset();
  EXPECT_TRUE(BufferPool::ReleaseByForeign(lent));
  EXPECT_TRUE(BufferPool::ReleaseByForeign(shared));
}

TEST(BufferPoolTest, HoldRacesWithTheLastReleases) {
  for (int round = 0; round < 200; ++round) {
    auto pool = MakePool(1);
    Buffer* const buffer = pool->Acquire();
    BufferPool::AddReferenceByForeign(buffer);
    BufferPool::ReleaseByOwner(buffer);
    std::atomic<bool> go{false};
    std::thread worker([&] {
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      BufferPool::ReleaseByForeign(buffer);
    });
    go.store(true, std::memory_order_release);
    ASSERT_EQ(pool->Hold(), buffer);
    pool.reset();
    worker.join();
    EXPECT_TRUE(BufferPool::ReleaseByForeign(buffer));
  }
}

// Buffers travel owner -> worker with extra references taken and dropped on both sides; at the end
// every one is free again, whatever the interleaving.
TEST(BufferPoolTest, NothingIsLostOrFreedTwiceUnderContention) {
  constexpr int kRounds = 20000;
  auto pool = MakePool(64);
  std::atomic<Buffer*> lane{nullptr};
  std::thread worker([&] {
    for (int taken = 0; taken < kRounds;) {
      Buffer* buffer = lane.exchange(nullptr, std::memory_order_acquire);
      if (buffer == nullptr) {
        std::this_thread::yield();
        continue;
      }
      ++taken;
      BufferPool::AddReference(buffer);
      BufferPool::Release(buffer);
      BufferPool::Release(buffer);
    }
  });
  for (int sent = 0; sent < kRounds;) {
    if (pool->HasReturns()) pool->DrainReturns();
    Buffer* buffer = pool->Acquire();
    if (buffer == nullptr) {
      std::this_thread::yield();
      continue;
    }
    buffer->data[0] = 1;
    if (sent % 2) BufferPool::AddReference(buffer);
    while (lane.load(std::memory_order_relaxed) != nullptr) std::this_thread::yield();
    lane.store(buffer, std::memory_order_release);
    if (sent % 2) BufferPool::Release(buffer);
    ++sent;
  }
  worker.join();
  pool->DrainReturns();
  EXPECT_EQ(pool->free_count(), 64u);
}

TEST(BufferPoolTest, RetirementRacesWithTheLastReleases) {
  for (int round = 0; round < 200; ++round) {
    auto pool = MakePool(16);
    std::vector<Buffer*> held;
    for (int i = 0; i < 16; ++i) held.push_back(pool->Acquire());
    for (int i = 0; i < 16; i += 2) BufferPool::AddReference(held[i]);
    std::atomic<bool> go{false};
    std::thread worker([&] {
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      for (Buffer* buffer : held) BufferPool::ReleaseByForeign(buffer);
    });
    go.store(true, std::memory_order_release);
    for (int i = 0; i < 16; i += 2) BufferPool::Release(held[i]);
    pool.reset();
    worker.join();
  }
}

TEST(PoolSizeTest, SaysItsArithmetic) {
  const PoolSize size = SizePoolForBurst(10'000, 10'000'000'000, 512, 1024);
  EXPECT_EQ(size.buffers, 25472u);  // 12.5 MB / 512 B = 24,415; + 1,024 = 25,439; up to 64s.
  EXPECT_THAT(size.arithmetic, HasSubstr("10000 us at 10.0 Gb/s = 12500000 B"));
}

}  // namespace
}  // namespace xtreme::packet
