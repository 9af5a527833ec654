// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/shared_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tools/connectx/wire/frame_list.h"

namespace xtreme::connectx {
namespace {

using Result = SharedRingConsumer::Result;

constexpr size_t kRingBytes = 1024;

class SharedRingTest : public testing::Test {
 protected:
  // What a poisoned peer could have left in `memory_` is 0xA5.
  void SetUp() override { memory_.fill(0xA5); }

  SharedRingProducer NewProducer() { return {&indices_, memory_}; }
  SharedRingConsumer NewConsumer() { return {&indices_, memory_}; }

  // The number of the next frame; -1: none, -2: corrupt.
  int64_t Pop(SharedRingConsumer& consumer) {
    SharedRingConsumer::Frame frame;
    const Result result = consumer.Pop(into_, &frame);
    if (result != Result::kFrame) return result == Result::kEmpty ? -1 : -2;
    last_ = frame;
    return NumberOf(frame.bytes);
  }

  SharedRingIndices indices_{};
  alignas(8) std::array<uint8_t, kRingBytes> memory_;
  std::array<uint8_t, kMaxFrameBytes> into_;
  SharedRingConsumer::Frame last_;
};

TEST_F(SharedRingTest, FramesComeOutWholeAndInOrderOverManyLaps) {
  auto producer = NewProducer();
  auto consumer = NewConsumer();
  for (uint32_t number = 0; number < 5000; ++number) {
    const auto frame = NumberedFrame(number, 18 + number * 7 % 900);
    ASSERT_TRUE(producer.Push(frame, number));
    ASSERT_EQ(Pop(consumer), number);
    ASSERT_EQ(std::vector<uint8_t>(last_.bytes.begin(), last_.bytes.end()), frame);
    ASSERT_EQ(last_.time_ns, number);
    ASSERT_TRUE(consumer.Empty());
  }
}

TEST_F(SharedRingTest, FullRingRefusesAndLosesNothing) {
  auto producer = NewProducer();
  auto consumer = NewConsumer();
  uint32_t pushed = 0;
  while (producer.Push(NumberedFrame(pushed, 100), 0)) ++pushed;
  EXPECT_EQ(pushed, kRingBytes / 120);  // 16 of header, 104 of frame.
  for (uint32_t number = 0; number < pushed; ++number) EXPECT_EQ(Pop(consumer), number);
  EXPECT_EQ(Pop(consumer), -1);
  EXPECT_TRUE(producer.Push(NumberedFrame(7), 0));
}

TEST_F(SharedRingTest, ProducerThatDiedInsideAFrameLeavesNothingOfIt) {
  auto consumer = NewConsumer();
  {
    auto producer = NewProducer();
    ASSERT_TRUE(producer.Push(NumberedFrame(1), 0));
    const uint64_t before = indices_.head;
    ASSERT_TRUE(producer.Push(NumberedFrame(2), 0));
    indices_.head = before;  // It died before it published.
  }
  auto heir = NewProducer();
  ASSERT_TRUE(heir.Push(NumberedFrame(3), 0));
  EXPECT_EQ(Pop(consumer), 1);
  EXPECT_EQ(Pop(consumer), 3);
  EXPECT_EQ(Pop(consumer), -1);
}

TEST_F(SharedRingTest, HeirOfAConsumerStartsEmpty) {
  auto producer = NewProducer();
  ASSERT_TRUE(producer.Push(NumberedFrame(1), 0));
  auto heir = NewConsumer();
  EXPECT_EQ(Pop(heir), -1);
  ASSERT_TRUE(producer.Push(NumberedFrame(2), 0));
  EXPECT_EQ(Pop(heir), 2);
}

struct Lie {
  const char* name;
  void (*tell)(SharedRingIndices& indices, uint8_t* memory);
};

void SetLength(uint8_t* memory, uint32_t length) {
  const uint32_t words[] = {length, ~length};
  std::memcpy(memory, words, sizeof(words));
}

const Lie kProducerLies[] = {
    {"HeadFarAhead", [](auto& indices, uint8_t*) { indices.head += uint64_t{1} << 40; }},
    {"HeadBehindTail", [](auto& indices, uint8_t*) { indices.head = ~uint64_t{0} - 7; }},
    {"HeadInsideAHeader", [](auto& indices, uint8_t*) { indices.head = 8; }},
    {"HeadNotAligned", [](auto& indices, uint8_t*) { indices.head = 21; }},
    {"LengthBeyondTheHead", [](auto&, uint8_t* memory) { SetLength(memory, 65); }},
    {"LengthBeyondAnyFrame", [](auto&, uint8_t* memory) { SetLength(memory, kMaxFrameBytes + 1); }},
    {"LengthThatWraps", [](auto&, uint8_t* memory) { SetLength(memory, ~uint32_t{0}); }},
    {"LengthWithoutItsComplement", [](auto&, uint8_t* memory) { memory[0] ^= 1; }},
};

TEST_F(SharedRingTest, ProducerThatLiesCostsWhatWaitsAndNoMore) {
  for (const Lie& lie : kProducerLies) {
    SCOPED_TRACE(lie.name);
    indices_.head = 0;
    indices_.tail = 0;
    auto producer = NewProducer();
    auto consumer = NewConsumer();
    ASSERT_TRUE(producer.Push(NumberedFrame(1), 0));
    lie.tell(indices_, memory_.data());
    EXPECT_EQ(Pop(consumer), -2);
    auto honest = NewProducer();
    ASSERT_TRUE(honest.Push(NumberedFrame(2), 0));
    EXPECT_EQ(Pop(consumer), 2);
    EXPECT_EQ(Pop(consumer), -1);
  }
}

TEST_F(SharedRingTest, ConsumerThatLiesIsSentNothingAndHarmsNothing) {
  auto producer = NewProducer();
  for (const uint64_t tail : {uint64_t{8}, ~uint64_t{0} << 20, uint64_t{1} << 50}) {
    indices_.tail = tail;
    EXPECT_FALSE(producer.Push(NumberedFrame(1), 0)) << tail;
  }
  indices_.tail = 0;
  EXPECT_TRUE(producer.Push(NumberedFrame(1), 0));
}

}  // namespace
}  // namespace xtreme::connectx
