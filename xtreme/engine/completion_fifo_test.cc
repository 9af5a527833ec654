// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/completion_fifo.h"

#include <gtest/gtest.h>

#include <vector>

namespace xtreme::engine {
namespace {

constexpr auto kAll = [](Completion*) { return true; };

void Emit(CompletionFifo* fifo, uint64_t cookie) {
  Completion* completion = fifo->Emit();
  Clear(completion, Kind::kOpDone);
  completion->cookie = cookie;
}

TEST(CompletionFifoTest, WritesStraightIntoTheCallersArray) {
  CompletionFifo fifo(64);
  std::vector<Completion> out(4);
  fifo.BeginPoll(out.data(), 4, sizeof(Completion), kAll);
  EXPECT_EQ(fifo.Emit(), &out[0]);
  EXPECT_EQ(fifo.Emit(), &out[1]);
  EXPECT_EQ(fifo.EndPoll(kAll), 2u);
}

TEST(CompletionFifoTest, WhatDoesNotFitWaitsInOrder) {
  CompletionFifo fifo(64);
  std::vector<Completion> out(2);
  fifo.BeginPoll(out.data(), 2, sizeof(Completion), kAll);
  EXPECT_EQ(fifo.Room(), 66u);
  for (uint64_t i = 0; i < 5; ++i) Emit(&fifo, i);
  EXPECT_EQ(fifo.EndPoll(kAll), 2u);
  EXPECT_EQ(fifo.waiting(), 3u);
  std::vector<uint64_t> cookies = {out[0].cookie, out[1].cookie};
  while (fifo.waiting() > 0) {
    fifo.BeginPoll(out.data(), 2, sizeof(Completion), kAll);
    const uint32_t count = fifo.EndPoll(kAll);
    for (uint32_t i = 0; i < count; ++i) cookies.push_back(out[i].cookie);
  }
  EXPECT_EQ(cookies, (std::vector<uint64_t>{0, 1, 2, 3, 4}));
}

TEST(CompletionFifoTest, NewOnesStandBehindThoseThatWait) {
  CompletionFifo fifo(64);
  std::vector<Completion> out(8);
  fifo.BeginPoll(nullptr, 0, sizeof(Completion), kAll);
  Emit(&fifo, 1);
  fifo.EndPoll(kAll);
  fifo.BeginPoll(out.data(), 8, sizeof(Completion), kAll);
  Emit(&fifo, 2);
  EXPECT_EQ(fifo.EndPoll(kAll), 2u);
  EXPECT_EQ(out[0].cookie, 1u);
  EXPECT_EQ(out[1].cookie, 2u);
}

TEST(CompletionFifoTest, WhatIsLeftIsTheCallersArrayWithoutWhatWaited) {
  CompletionFifo fifo(64);
  std::vector<Completion> out(2);
  fifo.BeginPoll(nullptr, 0, sizeof(Completion), kAll);
  for (uint64_t i = 0; i < 3; ++i) Emit(&fifo, i);
  EXPECT_EQ(fifo.Left(), 0u);
  fifo.EndPoll(kAll);
  fifo.BeginPoll(out.data(), 2, sizeof(Completion), kAll);
  EXPECT_EQ(fifo.Left(), 0u);
  fifo.EndPoll(kAll);
  fifo.BeginPoll(out.data(), 2, sizeof(Completion), kAll);
  EXPECT_EQ(fifo.Left(), 1u);
  fifo.EndPoll(kAll);
}

TEST(CompletionFifoTest, ASingleOneIsWrittenWhereItIsWantedAndTheNextWaits) {
  CompletionFifo fifo(64);
  std::vector<Completion> out(4);
  fifo.BeginPoll(out.data(), 4, sizeof(Completion), kAll);
  Emit(&fifo, 1);
  {
    // As for a driver that writes to out[1] and on, which are known to the fifo afterwards.
    CompletionFifo::Single single(fifo, &out[1]);
    EXPECT_FALSE(single.written());
    Emit(&fifo, 2);
    EXPECT_TRUE(single.written());
  }
  EXPECT_EQ(fifo.waiting(), 0u);
  EXPECT_EQ(fifo.Direct().data(), &out[1]);
  {
    CompletionFifo::Single single(fifo, &out[2]);
    Emit(&fifo, 3);
    Emit(&fifo, 4);
  }
  EXPECT_EQ(fifo.waiting(), 1u);
  EXPECT_TRUE(fifo.Direct().empty());
  fifo.EmittedDirect(2);
  Emit(&fifo, 5);
  EXPECT_EQ(fifo.EndPoll(kAll), 4u);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(out[i].cookie, i + 1);
  EXPECT_EQ(fifo.waiting(), 1u);
}

TEST(CompletionFifoTest, ASmallerStrideGetsTheFirstPartOfEach) {
  CompletionFifo fifo(64);
  std::vector<uint8_t> out(3 * 64, 0xa5);
  fifo.BeginPoll(out.data(), 2, 64, kAll);
  Emit(&fifo, 1);
  Emit(&fifo, 2);
  EXPECT_EQ(fifo.EndPoll(kAll), 2u);
  EXPECT_EQ(out[0], static_cast<uint8_t>(Kind::kOpDone));
  EXPECT_EQ(out[64], static_cast<uint8_t>(Kind::kOpDone));
  EXPECT_EQ(out[128], 0xa5);
}

TEST(CompletionFifoTest, WhatWaitsIsResolvedWhenHandedOut) {
  CompletionFifo fifo(64);
  std::vector<Completion> out(2);
  fifo.BeginPoll(nullptr, 0, sizeof(Completion), kAll);
  Emit(&fifo, 1);
  Emit(&fifo, 2);
  fifo.EndPoll(kAll);
  const auto resolve = [](Completion* completion) {
    completion->user_data = 42;
    return completion->cookie != 1;
  };
  fifo.BeginPoll(out.data(), 2, sizeof(Completion), resolve);
  ASSERT_EQ(fifo.EndPoll(resolve), 1u);
  EXPECT_EQ(out[0].cookie, 2u);
  EXPECT_EQ(out[0].user_data, 42u);
}

}  // namespace
}  // namespace xtreme::engine
