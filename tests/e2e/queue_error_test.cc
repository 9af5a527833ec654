// SPDX-License-Identifier: Apache-2.0
//
// A queue of a ring that stops by the device's own word, and what the other one still does: a
// card's queues are objects of their own.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/two_rings.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"

namespace xtreme::engine::testing {
namespace {

class QueueErrorTest : public TwoRingsTest {
 protected:
  explicit QueueErrorTest(const TwoRingsSetup& setup = {.tx_queue_frames = 64})
      : TwoRingsTest(setup) {}

  void Open() {
    ours = a->OpenSocket({.local = {kA, 7000}});
    ASSERT_TRUE(a->ring->udp().Connect(ours, {kB, 7000}, 0).ok());
    a->Settle();
    theirs = b->OpenSocket({.local = {kB, 7000}});
  }
  // The next frame for `a` finds a buffer that its key does not cover.
  void StopReceiving() {
    const nic::QueueAddresses at = *a->ring->core().device.queue->Addresses();
    constexpr size_t kSegmentBytes = 16, kKeyAt = 4;
    for (uint32_t i = 0; i < at.receive_segment_count; ++i) {
      std::memset(at.receive_segments + i * kSegmentBytes + kKeyAt, 0, sizeof(uint32_t));
    }
    ASSERT_EQ(b->SendTo(theirs, {kA, 7000}, "the last"), SendResult::kSent);
    rig->Step();
    rig.ExpectViolation("memory_key");
  }
  static int CountOf(const std::vector<Completion>& told, Kind kind) {
    int count = 0;
    for (const Completion& completion : told) count += completion.kind == kind;
    return count;
  }

  Handle ours = 0;
  Handle theirs = 0;
};

class LongQueueErrorTest : public QueueErrorTest {
 protected:
  LongQueueErrorTest() : QueueErrorTest({.tx_queue_frames = 2'048}) {}
};

// Nobody asked about any of them.
TEST_F(LongQueueErrorTest, AnErrorBehindManyCompletionsIsToldWithTheNextLookAtTheClock) {
  Open();
  Udp& udp = a->ring->udp();
  const uint8_t byte = 'x';
  const std::vector<nic::TxPayload> burst(1'000, {&byte, 1});
  SendResult last;
  ASSERT_EQ(udp.SendBurst(udp.Find(ours), burst, kNoDoorbell, &last), burst.size());
  static const std::vector<uint8_t> kUnregistered(1'000);
  ASSERT_EQ(udp.Send(udp.Find(ours),
                     {kUnregistered.data(), kUnregistered.size(), a->ring->AcquireBuffer()}, {}),
            SendResult::kSent);
  rig->Step();
  rig.ExpectViolation("memory_key");
  EXPECT_EQ(CountOf(a->Poll(), Kind::kRing), 0);
  a->ring->OnClock({.host = a->ring->core().clock.host(), .ptp = {}}, {});
  const auto told = a->Poll();
  ASSERT_EQ(CountOf(told, Kind::kRing), 1);
  EXPECT_EQ(told[0].event, RingEvent::kBroken);
}

// As a card whose completion queue has stopped, or ran over: it completes nothing any more.
TEST_F(QueueErrorTest, AQueueThatStopsWithoutACompletionIsToldByItsEventAndResetBringsItBack) {
  Open();
  for (const bool receive : {true, false}) {
    const nic::QueueAddresses at = *a->ring->core().device.queue->Addresses();
    (receive ? at.receive_completions : at.send_completions).record[0] = 0xffff;
    ASSERT_EQ(b->SendTo(theirs, {kA, 7000}, "the last"), SendResult::kSent);
    ASSERT_EQ(a->SendTo(ours, {kB, 7000}, "x", {.flags = kSendWantDone, .cookie = 4}),
              SendResult::kSent);
    rig->Step();
    rig.ExpectViolation("cq_consumer");
    a->engine->control().RunAndWait([] {});
    std::vector<Completion> told = a->Poll();
    for (const Completion& next : a->Poll()) told.push_back(next);
    ASSERT_EQ(CountOf(told, Kind::kRing), 1) << receive;
    Release(told);
    Release(b->Poll());
    EXPECT_EQ(a->SendTo(ours, {kB, 7000}, "refused"), SendResult::kRefusedState);
    ASSERT_TRUE(a->ring->Reset(1).ok());
    a->engine->control().RunAndWait([] {});
    for (int i = 0; i < 2; ++i) {
      for (const Completion& next : a->Poll()) told.push_back(next);
    }
    EXPECT_EQ(CountOf(told, Kind::kTxDone), 1) << receive;
    ASSERT_EQ(b->SendTo(theirs, {kA, 7000}, "again"), SendResult::kSent);
    rig->Step();
    const auto got = a->Poll();
    ASSERT_EQ(CountOf(got, Kind::kPacket), 1) << receive;
    Release(got);
  }
}

// Till then the device reads it.
TEST_F(QueueErrorTest, WhatIsBeingSentWhenReceivingStopsIsGivenBackWhenItHasLeft) {
  Open();
  StopReceiving();
  const std::string payload(1'000, 'g');
  packet::Buffer* const buffer = a->ring->AcquireBuffer();
  std::memcpy(buffer->data, payload.data(), payload.size());
  Udp& udp = a->ring->udp();
  ASSERT_EQ(udp.Send(udp.Find(ours), {buffer->data, payload.size(), buffer},
                     {.flags = kSendWantDone, .cookie = 4}),
            SendResult::kSent);
  const auto broken = a->Poll();
  ASSERT_EQ(CountOf(broken, Kind::kRing), 1);
  EXPECT_EQ(broken[0].event, RingEvent::kBroken);
  EXPECT_EQ(CountOf(broken, Kind::kTxDone) + CountOf(a->Poll(), Kind::kTxDone), 0);
  std::vector<packet::Buffer*> others;
  while (packet::Buffer* const other = a->ring->AcquireBuffer()) {
    std::memset(other->data, 'o', payload.size());
    others.push_back(other);
  }
  rig->Step();
  const auto got = b->Poll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(Text(got[0]), payload);
  Release(got);
  const auto done = a->Poll();
  ASSERT_EQ(CountOf(done, Kind::kTxDone), 1);
  EXPECT_EQ(done[0].status, 0);
  for (packet::Buffer* const other : others) packet::BufferPool::Release(other);
}

TEST_F(QueueErrorTest, SegmentsOfConnectionsThatEndWhenReceivingStopsAreKeptUntilTheyHaveLeft) {
  Open();
  const uint32_t buffers = a->ring->core().device.pool->capacity();
  Handle listener = 0;
  ASSERT_TRUE(b->ring->tcp().OpenListener({.local = {{}, 8000}}, &listener).ok());
  b->Settle();
  Handle client = 0;
  ASSERT_TRUE(a->ring->tcp().Connect({.peer = {kB, 8000}}, &client).ok());
  for (int i = 0; i < 4; ++i) {
    a->engine->control().RunAndWait([] {});
    rig->Step();
    a->Poll();
    b->Poll();
  }
  StopReceiving();
  const std::string stream(4'000, 's');
  Tcp& tcp = a->ring->tcp();
  ASSERT_EQ(tcp.Send(tcp.Find(client), {.data = reinterpret_cast<const uint8_t*>(stream.data()),
                                        .length = stream.size()}, {}),
            SendResult::kSent);
  EXPECT_EQ(CountOf(a->Poll(), Kind::kRing), 1);
  std::vector<packet::Buffer*> others;
  while (packet::Buffer* const other = a->ring->AcquireBuffer()) {
    std::memset(other->data, 'o', stream.size() / 4);
    others.push_back(other);
  }
  rig->Step();
  std::string got;
  for (const Completion& completion : b->Poll()) {
    if (completion.kind != Kind::kPacket) continue;
    got += Text(completion);
    packet::BufferPool::ReleaseChain(completion.buffer);
  }
  EXPECT_EQ(got, stream);
  for (packet::Buffer* const other : others) packet::BufferPool::Release(other);
  std::vector<Completion> told = a->Poll();
  for (const Completion& next : a->Poll()) told.push_back(next);
  ASSERT_EQ(CountOf(told, Kind::kTerminated), 1);
  EXPECT_EQ(told[0].status, ENETDOWN);
  EXPECT_EQ(a->ring->core().device.pool->free_count(), buffers);
}

}  // namespace
}  // namespace xtreme::engine::testing
