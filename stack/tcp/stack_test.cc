// SPDX-License-Identifier: Apache-2.0

#include "stack/tcp/stack.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/stack_tables.h"
#include "stack/tcp/time_wait.h"

namespace xtreme::tcp {
namespace {

constexpr base::Nanoseconds kStart = base::Seconds(1000);
constexpr wire::Endpoint kPeer{{10, 0, 0, 2}, 80};

// Nobody answers.
class Wire : public Device {
 public:
  Sink::Taken Transmit(const OutgoingFrame&) override { return Sink::Taken::kCopied; }
};

class StackTest : public testing::Test {
 protected:
  static constexpr uint32_t kConnections = 2;

  static wire::Endpoint Local(uint16_t port) { return {{10, 0, 0, 1}, port}; }

  Stack::Opened Open(uint16_t port) {
    return stack_.Open({.local = Local(port), .remote = kPeer, .options = &options_}, kStart);
  }

  packet::BufferPool::Handle pool_ = *packet::BufferPool::Create(
      {.buffers = 64, .hugepages = packet::BufferPool::Hugepages::kNever});
  Wire wire_;
  PcbOptions options_;
  Stack stack_{{.connections = kConnections}, wire_, *pool_, kStart};
};

// Each look finds that it should have fired, and would put it off.
TEST_F(StackTest, ATimerThatIsDueFiresHoweverOftenItIsLookedAtBefore) {
  Connection* const connection = Open(1000).connection;
  options_.connect_timeout = base::Milliseconds(100);
  Stack::Event event;
  base::Nanoseconds now = kStart + base::Milliseconds(500);
  for (int look = 0; look < 3 && !stack_.HasEvents(); ++look) {
    stack_.OnOptionsChanged(*connection, now);
    stack_.OnTimers(now);
    now += base::Milliseconds(1);
  }
  ASSERT_TRUE(stack_.TakeEvent(&event));
  EXPECT_EQ(event.kind, Stack::Event::Kind::kTerminated);
  EXPECT_EQ(event.status, ETIMEDOUT);
}

TEST_F(StackTest, AConnectThatFindsNoConnectionLeavesTimeWait) {
  const FlowKey key = FlowKey::Of(Local(1000), kPeer, 0);
  TimeWaitRecord record;
  record.key = key;
  stack_.EnterTimeWait(record, kStart);
  for (uint16_t i = 0; i < kConnections; ++i) ASSERT_EQ(Open(2000 + i).error, 0);
  EXPECT_EQ(Open(1000).error, ENOBUFS);
  EXPECT_NE(stack_.FindTimeWait(key), nullptr);
}

}  // namespace
}  // namespace xtreme::tcp
