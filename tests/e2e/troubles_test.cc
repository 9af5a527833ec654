// SPDX-License-Identifier: Apache-2.0
//
// A ring with a backup that sends by every way it has, at random, while its queues break, are
// taken, reset and moved. Whatever the order: each TX_DONE that was asked for comes once; what the
// device still has to read is nobody else's; and in the end every buffer, region and object is
// given back.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/failover_bed.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/registered_memory.h"
#include "xtreme/engine/ring_lane.h"
#include "xtreme/engine/ring_port.h"
#include "xtreme/engine/tcp.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint64_t kResetCookie = 99;
constexpr uint16_t kPeerPort = 6'000, kTcpPort = 8'000;
constexpr uint8_t kOthers = 0xee;  // What stands in buffers that are free.
constexpr int64_t kTurn = 10'000'000;

class TroublesTest : public FailoverTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  void OpenAll() {
    device_memory_ = random_() % 2 == 0 ? 8'192 : 0;
    Open();
    theirs_ = peer->OpenSocket({.local = {kPeer, kPeerPort}});
    plain_ = OpenSender(7'001);
    paced_ = OpenSender(7'002);
    ASSERT_TRUE(us->ring->udp().SetRate(paced_, {.bytes_per_second = 100'000'000}, 1).ok());
    Handle listener = 0;
    ASSERT_TRUE(us->ring->tcp().OpenListener({.local = {{}, kTcpPort}}, &listener).ok());
    ASSERT_TRUE(us->ring->RegisterMemory({.start = memory_.data(),
                                          .bytes = memory_.size(),
                                          .released = [](void* count, void*) {
                                            ++*static_cast<int*>(count);
                                          },
                                          .context = &released_}, &region_).ok());
    us->Settle();
    ASSERT_TRUE(peer->ring->tcp().Connect({.peer = {kOwn, kTcpPort}}, &client_).ok());
    peer->engine->control().RunAndWait([] {});
    Turns(20);
    ASSERT_NE(child_, 0u);
    ASSERT_TRUE(us->ring->udp().PrepareSend(plain_, std::span(memory_).first(50), &order_).ok());
    lane_ = us->ring->OpenLane();
  }
  Handle OpenSender(uint16_t port) {
    const Handle socket = us->OpenSocket({.local = {kOwn, port}});
    EXPECT_TRUE(us->ring->udp().Connect(socket, {kPeer, kPeerPort}, 0).ok());
    us->Settle();
    return socket;
  }

  // Both rings poll; `device`: and the devices work before.
  void Turns(uint32_t count, bool device = true) {
    for (; count != 0; --count) {
      now += kTurn;
      if (device) card->Step(kTurn);
      us->engine->control().RunAndWait([] {});
      for (const Completion& completion : us->Poll(1 + random_() % 64)) OnOurs(completion);
      UseFreeBuffers();
      for (const Completion& completion : peer->Poll()) OnTheirs(completion);
    }
  }
  void UseFreeBuffers() {
    std::vector<packet::Buffer*> free;
    while (packet::Buffer* const buffer = us->ring->AcquireBuffer()) {
      std::memset(buffer->data, kOthers, us->ring->buffer_bytes());
      free.push_back(buffer);
    }
    for (packet::Buffer* const buffer : free) packet::BufferPool::ReleaseByOwner(buffer);
  }
  void OnOurs(const Completion& completion) {
    if (completion.kind == Kind::kAccepted) child_ = completion.socket;
    if (completion.kind == Kind::kTerminated && completion.socket == child_) child_ = 0;
    if (completion.kind == Kind::kPacket) packet::BufferPool::ReleaseChain(completion.buffer);
    if (completion.kind == Kind::kOpDone && completion.cookie == kResetCookie) {
      --resets_;
      last_status_ = completion.status;
    }
    if (completion.kind != Kind::kTxDone) return;
    EXPECT_EQ(outstanding_.erase(completion.cookie), 1u) << completion.cookie;
    EXPECT_TRUE(completion.status == 0 || completion.status == ECANCELED) << completion.status;
  }
  // Everything that is sent is of one byte.
  void OnTheirs(const Completion& completion) {
    if (completion.kind == Kind::kTerminated) client_ = 0;
    if (completion.kind != Kind::kPacket) return;
    const std::span payload(completion.data, completion.length);
    const bool whole = std::all_of(payload.begin(), payload.end(), [&](uint8_t byte) {
      return byte == payload[0] && byte != kOthers;
    });
    EXPECT_TRUE(whole) << payload.size() << " bytes, of a buffer that was another's";
    packet::BufferPool::ReleaseChain(completion.buffer);
  }

  SendOptions Options() {
    SendOptions options{.flags = random_() % 3 == 0 ? uint32_t{kNoDoorbell} : 0};
    if (random_() % 2 == 0) return options;
    options.flags |= kSendWantDone;
    options.cookie = ++cookie_;
    outstanding_.insert(cookie_);
    return options;
  }
  // What was refused is not told.
  bool Note(SendResult result, const SendOptions& options) {
    const bool accepted = static_cast<int>(result) >= 0;
    if (!accepted) outstanding_.erase(options.cookie);
    return accepted;
  }
  // Copied, in a buffer of the pool, or from the program's own memory; `data` not null: from there,
  // as if it were a buffer's.
  void SendDatagram(const uint8_t* data = nullptr) {
    constexpr std::array<size_t, 5> kLengths = {5, 100, 300, 1'000, 1'472};
    Payload payload{.data = memory_.data(), .length = kLengths[random_() % kLengths.size()]};
    const uint32_t kind = random_() % 3;
    if (data != nullptr || kind == 1) {
      payload.buffer = us->ring->AcquireBuffer();
      if (payload.buffer == nullptr) return;
      std::memset(payload.buffer->data, 'b', kLengths.back());
      payload.data = data != nullptr ? data : payload.buffer->data;
    } else if (kind == 2) {
      packet::BufferPool::AddReferenceByOwner(region_);
      payload.buffer = region_;
    }
    Udp& udp = us->ring->udp();
    const SendOptions options = Options();
    UdpSocket* const from = udp.Find(random_() % 3 == 0 ? paced_ : plain_);
    if (Note(udp.Send(from, payload, options), options) || payload.buffer == nullptr) return;
    packet::BufferPool::ReleaseByOwner(payload.buffer);
  }
  void FireOrder() {
    us->ring->prepared().Rearm(order_);
    const SendOptions options = Options();
    if (random_() % 2 == 0) {
      EXPECT_EQ(lane_->Fire(order_, options.cookie, options.flags), 0);
    } else {
      Note(Fire(*us->ring->prepared().Find(order_), options), options);
    }
  }
  void SendStream() {
    const std::vector<uint8_t> stream(1 + random_() % 20'000, 's');
    const Payload payload{.data = stream.data(), .length = stream.size()};
    Tcp& tcp = us->ring->tcp();
    Tcp& tcp_there = peer->ring->tcp();
    if (TcpSocket* const child = tcp.Find(child_)) {
      const SendOptions options = Options();
      Note(tcp.Send(child, payload, options), options);
    }
    if (TcpSocket* const client = tcp_there.Find(client_)) tcp_there.Send(client, payload, {});
  }

  // The device has no key for it.
  void BreakSends() {
    static const std::vector<uint8_t> kUnknown(1'472, 'u');
    SendDatagram(kUnknown.data());
  }
  void BreakReceives() {
    const auto at = us->ring->core().device.queue->Addresses();
    if (!at.has_value()) return;
    constexpr size_t kSegmentBytes = 16, kKeyAt = 4;
    for (uint32_t i = 0; i < at->receive_segment_count; ++i) {
      std::memset(at->receive_segments + i * kSegmentBytes + kKeyAt, 0, sizeof(uint32_t));
    }
    peer->SendTo(theirs_, {kOwn, 7'001}, "the last");
    card->Step(kTurn);
    SendDatagram();
    SendStream();
    Turns(1, /*device=*/random_() % 2 == 0);
  }
  void BreakCompletions() {
    const auto at = us->ring->core().device.queue->Addresses();
    if (!at.has_value()) return;
    (random_() % 2 == 0 ? at->receive_completions : at->send_completions).record[0] = 0xffff;
  }
  void Reset() { resets_ += us->ring->Reset(kResetCookie).ok(); }
  void TakeQueues() {
    nic::QueueAddresses addresses;
    us->ring->TakeQueues(&addresses);
  }
  void MakeTrouble() {
    switch (random_() % 9) {
      case 0: return Reset();
      case 1: return ends[0]->SetPlugged(plugged_ = !plugged_);
      case 2: return BreakSends();
      case 3: return BreakReceives();
      case 4: return BreakCompletions();
      case 5: return TakeQueues();
      case 6: return us->ring->Flush();
      case 7: return static_cast<void>(us->ring->Arm());
      default: card->Step(kTurn);
    }
  }
  void Send() {
    switch (random_() % 4) {
      case 0: return FireOrder();
      case 1: return SendStream();
      default: return SendDatagram();
    }
  }
  // Nothing breaks any more, and the ring is given queues until it has had the last word.
  void Recover() {
    ends[0]->SetPlugged(true);
    Turns(60);
    for (int i = 0; i < 3; ++i) {
      Reset();
      Turns(60);
    }
    EXPECT_EQ(resets_, 0);
    EXPECT_EQ(last_status_, 0);
    now += kLeftRulesStay.count();
    Turns(300);
  }
  void TearDown() override {
    lane_.reset();
    us.reset();
    peer.reset();
    EXPECT_EQ(card->live_objects(), connectx::LiveObjects{});
    for (size_t i = 0; i < card->size(); ++i) {
      for (const auto& violation : card->device(i).Violations()) {
        const bool ours = violation.starts_with("memory_key") ||
                          violation.starts_with("cq_consumer");
        EXPECT_TRUE(ours) << violation;
      }
    }
  }

  std::mt19937 random_{GetParam()};
  alignas(64) std::array<uint8_t, 4'096> memory_{};
  packet::Buffer* region_ = nullptr;
  int released_ = 0;
  Handle plain_ = 0, paced_ = 0, theirs_ = 0, client_ = 0, child_ = 0, order_ = 0;
  std::shared_ptr<RingLane> lane_;
  bool plugged_ = true;
  int resets_ = 0;  // Whose end was not told yet.
  int last_status_ = 0;
  uint64_t cookie_ = 1'000;
  std::set<uint64_t> outstanding_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, TroublesTest, ::testing::Range(1u, 41u));

TEST_P(TroublesTest, LeaveNothingTwiceAndNothingBehind) {
  OpenAll();
  for (uint32_t i = 20 + random_() % 60; i != 0; --i) {
    random_() % 3 == 0 ? MakeTrouble() : Send();
    if (random_() % 3 == 0) Turns(random_() % 3, /*device=*/random_() % 2 == 0);
  }
  Recover();
  EXPECT_EQ(outstanding_, std::set<uint64_t>{});
  packet::BufferPool::ReleaseByOwner(region_);
  us->ring->prepared().Discard(order_);
  Turns(10);
  EXPECT_EQ(released_, 1);
  if (child_ != 0) return;  // It may hold what is not acknowledged.
  EXPECT_EQ(Counter("pool", "free") + us->ring->core().device.queue->posted(),
            Counter("pool", "buffers"));
}

}  // namespace
}  // namespace xtreme::engine::testing
