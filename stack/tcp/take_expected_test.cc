// SPDX-License-Identifier: Apache-2.0

#include "stack/tcp/take_expected.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "stack/base/byte_order.h"
#include "stack/packet/buffer_pool.h"

namespace xtreme::tcp {
namespace {

constexpr base::Nanoseconds kNow = base::Seconds(1);
constexpr uint16_t kFirstPort = 1000;
constexpr uint32_t kConnections = 3 * StackTables::kRecent;  // Their places in the cache meet.

class Wire : public Device {
 public:
  Sink::Taken Transmit(const OutgoingFrame&) override { return Sink::Taken::kCopied; }
};

class FindPlainTest : public testing::Test {
 protected:
  FindPlainTest() {
    for (uint32_t i = 0; i < kConnections; ++i) {
      connections_.push_back(stack_
                                 .Open({.local = {{10, 0, 0, 1}, PortOf(i)},
                                        .remote = {{10, 0, 0, 2}, 80},
                                        .options = &options_},
                                       kNow)
                                 .connection);
    }
  }

  static uint16_t PortOf(uint32_t i) { return static_cast<uint16_t>(kFirstPort + i); }

  // For a frame from the peer of connection `i`.
  Connection* Find(uint32_t i) const {
    std::array<uint8_t, wire::PlainTcpView::kReadableBytes> frame{};
    base::StoreBe32(&frame[26], 0x0A000002);
    base::StoreBe32(&frame[30], 0x0A000001);
    base::StoreBe16(&frame[34], 80);
    base::StoreBe16(&frame[36], PortOf(i));
    return stack_.FindPlain(wire::PlainTcpView(frame.data()));
  }

  packet::BufferPool::Handle pool_ = *packet::BufferPool::Create(
      {.buffers = 64, .hugepages = packet::BufferPool::Hugepages::kNever});
  Wire wire_;
  PcbOptions options_;
  Stack stack_{{.connections = kConnections}, wire_, *pool_, kNow};
  std::vector<Connection*> connections_;
};

TEST_F(FindPlainTest, EachIsFoundHoweverManyReceiveInTurn) {
  for (int turn = 0; turn < 2; ++turn) {
    for (uint32_t i = 0; i < kConnections; ++i) {
      EXPECT_EQ(Find(i), connections_[i]) << i;
      EXPECT_EQ(Find(i), connections_[i]) << i << ", again";
    }
  }
  EXPECT_EQ(Find(kConnections), nullptr);
}

TEST_F(FindPlainTest, WhatHasEndedIsNotFoundThoughItReceivedLast) {
  for (uint32_t i = 0; i < kConnections; ++i) {
    ASSERT_EQ(Find(i), connections_[i]);
    stack_.Abort(*connections_[i], kNow);
    EXPECT_EQ(Find(i), nullptr) << i;
  }
}

}  // namespace
}  // namespace xtreme::tcp
