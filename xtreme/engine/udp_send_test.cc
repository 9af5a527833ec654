// SPDX-License-Identifier: Apache-2.0
//
// The completion contract, sends.

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "stack/base/byte_order.h"
#include "stack/wire/arp.h"
#include "stack/wire/frame.h"
#include "stack/wire/ipv4.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/testing/ring_fixture.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine::testing {
namespace {

class UdpSendTest : public RingTest {
 protected:
  static wire::MacAddress Destination(const SentFrame& frame) {
    return wire::MacAddress::Load(frame.bytes.data());
  }
  static wire::UdpFrame Parse(const SentFrame& frame, uint8_t verified = 3) {
    wire::UdpFrame parsed;
    EXPECT_EQ(wire::ParseUdpFrame(frame.bytes.data(), frame.bytes.size(), verified, &parsed),
              wire::FrameVerdict::kUdp);
    return parsed;
  }
  static std::string PayloadOf(const SentFrame& frame, const wire::UdpFrame& parsed) {
    return std::string(
        reinterpret_cast<const char*>(frame.bytes.data()) + parsed.payload_offset,
        parsed.payload_bytes);
  }
  SendResult SendTo(Handle socket, wire::Endpoint peer, std::string_view payload,
                    SendOptions send_options = {}) {
    return ring->udp().SendTo(
        ring->udp().Find(socket), peer,
        {.data = reinterpret_cast<const uint8_t*>(payload.data()), .length = payload.size()},
        send_options);
  }
};

TEST_F(UdpSendTest, ASendIsOneFrameOnTheFlowsHeaders) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  EXPECT_EQ(Send(socket, "order"), SendResult::kSent);
  ASSERT_EQ(queue().sent().size(), 1u);
  const SentFrame& frame = queue().sent()[0];
  EXPECT_EQ(Destination(frame), wire::MacAddress({2, 0, 0, 0, 0, 2}));
  EXPECT_EQ(frame.flags, nic::kTxIpChecksum | nic::kTxL4Checksum);
  const wire::UdpFrame parsed = Parse(frame);
  EXPECT_EQ(parsed.flow.source, kOwn);
  EXPECT_EQ(parsed.flow.source_port, 7000);
  EXPECT_EQ(parsed.flow.destination, kPeer.address);
  EXPECT_EQ(parsed.flow.destination_port, kPeer.port);
  EXPECT_EQ(PayloadOf(frame, parsed), "order");
  EXPECT_EQ(queue().visible(), 1u);
}

TEST_F(UdpSendTest, WithoutADeviceThatComputesChecksumsSoftwareDoes) {
  nic_options.transmit_checksum = false;
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  for (const char* payload : {"odd", "even"}) {
    EXPECT_EQ(Send(socket, payload), SendResult::kSent);
    const SentFrame& frame = queue().sent().back();
    EXPECT_EQ(frame.flags, 0);
    EXPECT_EQ(PayloadOf(frame, Parse(frame, wire::kNoChecksumVerified)), payload);
  }
}

TEST_F(UdpSendTest, LongDatagramIsCopiedToTheDeviceWhileThereIsRoomAndTakesNoBuffer) {
  nic_options.device_memory_bytes = 4'096;
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  const std::string datagram(1'000, 'd');
  const uint64_t free = Counter("pool", "free");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Send(socket, datagram), SendResult::kSent);
  EXPECT_EQ(Counter("pool", "free"), free);
  EXPECT_EQ(Counter("queue", "device_memory_bytes"), 4'096u);
  EXPECT_EQ(Counter("queue", "tx_device_memory"), 4u);
  EXPECT_EQ(Send(socket, datagram), SendResult::kSent) << "gathered";
  EXPECT_EQ(Counter("queue", "tx_device_memory"), 4u);
  EXPECT_EQ(Counter("pool", "free"), free - 1);
  queue().CompleteSends();
  EXPECT_EQ(Send(socket, datagram), SendResult::kSent);
  EXPECT_EQ(Counter("queue", "tx_device_memory"), 5u);
  const SentFrame& last = queue().sent().back();
  EXPECT_EQ(PayloadOf(last, Parse(last)), datagram);
}

TEST_F(UdpSendTest, WouldSendKnowsOfRoomOnTheDeviceWhereNoBufferIsFree) {
  nic_options.device_memory_bytes = 2'048;
  Open();
  const Handle handle = OpenSocket(7000);
  Connect(handle, kPeer);
  UdpSocket* const socket = ring->udp().Find(handle);
  std::vector<packet::Buffer*> held;
  while (packet::Buffer* buffer = ring->AcquireBuffer()) held.push_back(buffer);
  const std::string datagram(1'000, 'd');
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ring->udp().WouldSend(socket, datagram.size()), SendResult::kSent);
    EXPECT_EQ(Send(handle, datagram), SendResult::kSent);
  }
  EXPECT_EQ(ring->udp().WouldSend(socket, datagram.size()), SendResult::kRefusedBuffers);
  EXPECT_EQ(Send(handle, datagram), SendResult::kRefusedBuffers);
  queue().CompleteSends();
  EXPECT_EQ(ring->udp().WouldSend(socket, datagram.size()), SendResult::kSent);
  EXPECT_EQ(Send(handle, datagram), SendResult::kSent);
  EXPECT_EQ(ring->udp().WouldSend(socket, 1'500), SendResult::kRefusedBuffers) << "in fragments";
  EXPECT_EQ(Counter("queue", "tx_device_memory"), 3u);
  for (packet::Buffer* buffer : held) packet::BufferPool::Release(buffer);
}

TEST_F(UdpSendTest, NoDoorbellWaitsForTheFlushOfAPoll) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  Send(socket, "1", {.flags = kNoDoorbell});
  Send(socket, "2", {.flags = kNoDoorbell});
  EXPECT_EQ(queue().visible(), 0u);
  PollOnce();
  EXPECT_EQ(queue().visible(), 2u);
  EXPECT_EQ(queue().counters().tx_doorbells, 1u);
}

TEST_F(UdpSendTest, ABurstLeavesInOrderOnOneDoorbellWhateverEachDatagramNeeds) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  const std::vector<uint8_t> bytes(3'000, 'b');
  std::vector<nic::TxPayload> payloads;
  // The second is gathered, the fourth leaves in fragments.
  for (uint32_t length : {10u, 1'000u, 20u, 3'000u, 30u}) {
    payloads.push_back({bytes.data(), length});
  }
  SendResult last;
  EXPECT_EQ(ring->udp().SendBurst(ring->udp().Find(socket), payloads, 0, &last), 5u);
  EXPECT_EQ(last, SendResult::kSent);
  ASSERT_EQ(queue().sent().size(), 7u);
  EXPECT_EQ(queue().visible(), 7u);
  EXPECT_EQ(Counter("queue", "tx_doorbells"), 1u);
  EXPECT_EQ(Parse(queue().sent()[0]).payload_bytes, 10u);
  EXPECT_EQ(Parse(queue().sent()[1]).payload_bytes, 1'000u);
  EXPECT_EQ(Parse(queue().sent()[2]).payload_bytes, 20u);
  EXPECT_EQ(Parse(queue().sent()[6]).payload_bytes, 30u);
  const UdpSocket& sender = *ring->udp().Find(socket);
  EXPECT_EQ(sender.flows->counters.sent, 5u);
  EXPECT_EQ(sender.flows->counters.sent_bytes, 4'060u);
}

TEST_F(UdpSendTest, ABurstEndsAtTheFirstThatIsRefused) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  const std::vector<uint8_t> bytes(10, 'b');
  const std::vector<nic::TxPayload> payloads(options.tx_queue_frames + 1, {bytes.data(), 10});
  SendResult last;
  const uint32_t sent = ring->udp().SendBurst(ring->udp().Find(socket), payloads, 0, &last);
  EXPECT_EQ(last, SendResult::kRefusedSqFull);
  EXPECT_EQ(sent, options.tx_queue_frames);
  EXPECT_EQ(queue().visible(), options.tx_queue_frames) << "what was accepted is rung for";
  EXPECT_EQ(ring->udp().Find(socket)->sends.refused, 1u);
}

TEST_F(UdpSendTest, TxWireAndTxDoneComeInTheOrderOfTheSends) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  Send(socket, "a", {.flags = kSendWantDone, .cookie = 1});
  Send(socket, "b");
  Send(socket, "c", {.flags = kSendWantWire | kSendWantDone, .cookie = 2});
  EXPECT_TRUE(PollAll().empty());
  queue().CompleteSends(777);
  const auto got = PollAll();
  ASSERT_EQ(Kinds(got), (std::vector<Kind>{Kind::kTxDone, Kind::kTxWire, Kind::kTxDone}));
  EXPECT_EQ(got[0].cookie, 1u);
  EXPECT_EQ(got[1].cookie, 2u);
  EXPECT_EQ(got[1].hw_clock, 777u);
  EXPECT_EQ(got[1].hw_time_ns, 777);
  EXPECT_EQ(got[2].cookie, 2u);
  EXPECT_EQ(got[2].status, 0);
  EXPECT_EQ(got[2].socket, socket);
  for (const Completion* done : {&got[0], &got[2]}) {
    EXPECT_EQ(done->hw_time_ns, 0) << "what a kind does not use is 0";
    EXPECT_EQ(done->hw_clock, 0u);
    EXPECT_EQ(done->flags, 0);
  }
  queue().CompleteSends(888);  EXPECT_EQ(got[2].socket, socket);
  queue().CompleteSends(888);
  EXPECT_TRUE(PollAll().empty());
}

TEST_F(UdpSendTest, AFullSendQueueIsAResultAndNothingWasTaken) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  for (uint32_t i = 0; i < options.tx_queue_frames; ++i) {
    ASSERT_EQ(Send(socket, "x"), SendResult::kSent);
  }
  EXPECT_EQ(ring->udp().WouldSend(ring->udp().Find(socket), 1), SendResult::kRefusedSqFull);
  EXPECT_EQ(Send(socket, "y"), SendResult::kRefusedSqFull);
  EXPECT_EQ(queue().sent().size(), options.tx_queue_frames);
  EXPECT_EQ(Counter("ring", "refused_sq_full"), 1u);
  queue().CompleteSends();
  EXPECT_EQ(ring->udp().WouldSend(ring->udp().Find(socket), 1), SendResult::kSent);
  EXPECT_EQ(Send(socket, "y"), SendResult::kSent);
}

TEST_F(UdpSendTest, WhoHearsOfNoSendHasNoMoreToHearOfThanTheQueueHolds) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  for (uint32_t i = 0; i < options.tx_queue_frames; ++i) {
    ASSERT_EQ(Send(socket, "x", {.flags = kSendWantDone, .cookie = i}), SendResult::kSent);
    queue().CompleteSends();
  }
  EXPECT_EQ(Send(socket, "y", {.flags = kSendWantDone}), SendResult::kRefusedSqFull);
  EXPECT_EQ(Send(socket, "z"), SendResult::kSent) << "of which nothing is to be told";
  const auto told = PollAll();
  ASSERT_EQ(told.size(), options.tx_queue_frames);
  for (uint32_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i].cookie, i);
}

// Also of these there are no more at a time; nobody has to poll for them.
TEST_F(UdpSendTest, BuffersThatHaveLeftGiveTheirPlacesToOthers) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  const std::string datagram(1'000, 'g');
  for (uint32_t i = 0; i < options.tx_queue_frames; ++i) {
    ASSERT_EQ(Send(socket, datagram), SendResult::kSent);
  }
  EXPECT_EQ(Send(socket, datagram), SendResult::kRefusedSqFull);
  queue().CompleteSends();
  EXPECT_EQ(Send(socket, datagram), SendResult::kSent);
}

TEST_F(UdpSendTest, WhatDoesNotFitInlineIsGatheredAndItsBufferComesBack) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  const uint32_t before = ring->core().device.pool->free_count();
  std::string payload(1'000, 'g');
  EXPECT_EQ(Send(socket, payload, {.flags = kSendWantDone}), SendResult::kSent);
  payload.assign(1'000, '!');  // It may be reused at once.
  EXPECT_EQ(ring->core().device.pool->free_count(), before - 1);
  EXPECT_EQ(PayloadOf(queue().sent()[0], Parse(queue().sent()[0])), std::string(1'000, 'g'));
  queue().CompleteSends();
  EXPECT_EQ(Kinds(PollAll()), std::vector<Kind>{Kind::kTxDone});
  EXPECT_EQ(ring->core().device.pool->free_count(), before);
}

TEST_F(UdpSendTest, SendBufferTakesOneReferenceOnlyWhenAccepted) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  packet::Buffer* buffer = ring->AcquireBuffer();
  ASSERT_NE(buffer, nullptr);
  memset(buffer->data, 'z', 600);
  UdpSocket* found = ring->udp().Find(socket);
  const Payload payload{.data = buffer->data, .length = 600, .buffer = buffer};
  ASSERT_EQ(ring->udp().Send(found, payload, {.flags = kSendWantDone}), SendResult::kSent);
  EXPECT_EQ(buffer->owner_references, 1u);
  queue().CompleteSends();
  PollAll();
  EXPECT_EQ(buffer->owner_references, 0u);

  packet::Buffer* refused = ring->AcquireBuffer();
  const Payload too_long{.data = refused->data, .length = 70'000, .buffer = refused};
  EXPECT_EQ(ring->udp().Send(found, too_long, {}), SendResult::kRefusedSize);
  EXPECT_EQ(refused->owner_references, 1u);
  packet::BufferPool::Release(refused);
}

TEST_F(UdpSendTest, ADatagramAboveTheMtuLeavesInFragmentsThatAddUp) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  std::string payload;
  for (int i = 0; i < 4'000; ++i) payload += static_cast<char>(i % 251);
  EXPECT_EQ(Send(socket, payload), SendResult::kSent);
  ASSERT_EQ(queue().sent().size(), 3u);
  std::string assembled;
  uint16_t id = 0;
  for (size_t i = 0; i < 3; ++i) {
    const auto ip = wire::Ipv4View::Parse(std::span(queue().sent()[i].bytes).subspan(14),
                                          wire::ChecksumCheck::kVerify);
    ASSERT_TRUE(ip.ok());
    EXPECT_EQ(ip->more_fragments(), i < 2);
    EXPECT_FALSE(ip->dont_fragment());
    EXPECT_EQ(ip->fragment_offset_bytes(), assembled.size());
    EXPECT_TRUE(i == 0 || ip->id() == id);
    id = ip->id();
    assembled.append(ip->payload().begin(), ip->payload().end());
  }
  const std::span<const uint8_t> datagram(reinterpret_cast<const uint8_t*>(assembled.data()),
                                          assembled.size());
  const auto udp = wire::UdpView::Parse(datagram);
  ASSERT_TRUE(udp.ok());
  EXPECT_NE(udp->checksum(), 0);
  EXPECT_TRUE(udp->HasValidChecksum(kOwn, kPeer.address));
  EXPECT_EQ(assembled.substr(8), payload);
}

TEST_F(UdpSendTest, AnUnknownNeighbourIsAskedForAndTheSendsFollowTheAnswer) {
  Open();
  const Handle socket = OpenSocket(7000);
  EXPECT_EQ(SendTo(socket, kStranger, "1"), SendResult::kQueued);
  EXPECT_EQ(SendTo(socket, kStranger, "2", {.flags = kSendWantDone, .cookie = 5}),
            SendResult::kQueued);
  EXPECT_EQ(SendTo(socket, kStranger, "3", {.flags = kNowOrFail}),
            SendResult::kRefusedNeighbour);
  const SendFlows& flows = *ring->udp().Find(socket)->flows;
  EXPECT_EQ(flows.waiting, 2u);
  EXPECT_EQ(flows.waiting_bytes, 2u);
  ASSERT_EQ(queue().sent().size(), 1u);
  const auto request =
      wire::ArpView::Parse(std::span(queue().sent()[0].bytes).subspan(14));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(Destination(queue().sent()[0]), wire::MacAddress::Broadcast());
  EXPECT_EQ(request->operation(), wire::ArpOperation::kRequest);
  EXPECT_EQ(request->sender(), kOwn);
  EXPECT_EQ(request->target(), kStranger.address);

  const wire::MacAddress mac({2, 0, 0, 0, 0, 0x77});
  kernel->Answer(kStranger.address, mac);
  PollAll();
  ASSERT_EQ(queue().sent().size(), 3u);
  EXPECT_EQ(flows.waiting, 0u);
  EXPECT_EQ(flows.waiting_bytes, 0u);
  EXPECT_EQ(flows.counters.sent, 2u);
  EXPECT_EQ(Destination(queue().sent()[1]), mac);
  EXPECT_EQ(PayloadOf(queue().sent()[1], Parse(queue().sent()[1])), "1");
  EXPECT_EQ(PayloadOf(queue().sent()[2], Parse(queue().sent()[2])), "2");
  queue().CompleteSends();
  const auto done = PollAll();
  ASSERT_EQ(Kinds(done), std::vector<Kind>{Kind::kTxDone});
  EXPECT_EQ(done[0].cookie, 5u);
  EXPECT_EQ(SendTo(socket, kStranger, "4", {.flags = kNowOrFail}), SendResult::kSent);
  EXPECT_EQ(Destination(queue().sent()[3]), mac);
}

TEST_F(UdpSendTest, ANeighbourThatNeverAnswersFailsWhatWaitedForIt) {
  Open();
  const Handle socket = OpenSocket({.local = {{}, 7000}, .user_data = 4});
  SendTo(socket, kStranger, "1", {.flags = kSendWantDone, .cookie = 5});
  std::vector<Completion> got;
  for (int i = 0; i < 10 && got.empty(); ++i) {
    now += 2'000'000'000;
    got = PollAll();
  }
  ASSERT_GE(got.size(), 2u);
  EXPECT_EQ(got[0].kind, Kind::kError);
  EXPECT_EQ(got[0].status, EHOSTUNREACH);
  EXPECT_EQ(got[0].destination_port, kStranger.port);
  EXPECT_EQ(got[0].destination_ip[15], 77);
  EXPECT_EQ(got[0].user_data, 4u);
  EXPECT_EQ(got[1].kind, Kind::kTxDone);
  EXPECT_EQ(got[1].status, ECANCELED);
  EXPECT_EQ(got[1].cookie, 5u);
  EXPECT_EQ(Counter("ring", "arp_requests"), 3u);
  EXPECT_EQ(Counter("drop", "neighbour"), 1u);
}

TEST_F(UdpSendTest, ADatagramInFragmentsThatNobodyAnsweredForFailsOnce) {
  Open();
  const Handle socket = OpenSocket(7000);
  EXPECT_EQ(SendTo(socket, kStranger, std::string(4'000, 'f'),
                   {.flags = kSendWantDone, .cookie = 5}),
            SendResult::kQueued);
  std::vector<Completion> got;
  for (int i = 0; i < 10 && got.empty(); ++i) {
    now += 2'000'000'000;
    got = PollAll();
  }
  ASSERT_EQ(Kinds(got), (std::vector<Kind>{Kind::kError, Kind::kTxDone, Kind::kRing}));
  EXPECT_EQ(got[0].status, EHOSTUNREACH);
  EXPECT_EQ(got[1].status, ECANCELED);
  EXPECT_EQ(got[2].event, RingEvent::kDropped);
  EXPECT_EQ(got[2].count, 1u);
  EXPECT_EQ(Counter("drop", "neighbour"), 1u);
}

TEST_F(UdpSendTest, WhatFollowsAFragmentThatFoundNoRoomIsNotPosted) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  EXPECT_EQ(SendTo(socket, kStranger, std::string(4'000, 'f'),
                   {.flags = kSendWantDone, .cookie = 5}),
            SendResult::kQueued);
  while (queue().posted_frames() < options.tx_queue_frames) {
    ASSERT_EQ(Send(socket, "x"), SendResult::kSent);
  }
  // The first is tried twice; then there is room for the others.
  int tries = 0;
  queue().on_full = [&] {
    if (++tries == 2) queue().CompleteSends();
  };
  kernel->Answer(kStranger.address, wire::MacAddress({2, 0, 0, 0, 0, 0x77}));
  auto got = PollAll();
  EXPECT_EQ(queue().sent().size(), options.tx_queue_frames);
  queue().CompleteSends();
  for (const Completion& next : PollAll()) got.push_back(next);
  ASSERT_EQ(Kinds(got), (std::vector<Kind>{Kind::kError, Kind::kTxDone, Kind::kRing}));
  EXPECT_EQ(got[0].status, ENOBUFS);
  EXPECT_EQ(got[1].status, ECANCELED);
  EXPECT_EQ(got[2].count, 1u);
  const SendFlows& flows = *ring->udp().Find(socket)->flows;
  EXPECT_EQ(flows.waiting, 0u);
  EXPECT_EQ(flows.waiting_bytes, 0u);
  EXPECT_EQ(SendTo(socket, kStranger, "whole"), SendResult::kSent);
}

TEST_F(UdpSendTest, AFragmentBeforeOneThatFoundNoRoomIsNoPayloadThatWasSent) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  EXPECT_EQ(SendTo(socket, kStranger, std::string(4'000, 'f')), SendResult::kQueued);
  const SendCounters& counters = ring->udp().Find(socket)->flows->counters;
  while (queue().posted_frames() + 1 < options.tx_queue_frames) {
    ASSERT_EQ(Send(socket, "x"), SendResult::kSent);
  }
  const uint64_t sent = counters.sent, bytes = counters.sent_bytes;
  kernel->Answer(kStranger.address, wire::MacAddress({2, 0, 0, 0, 0, 0x77}));
  PollAll();
  ASSERT_EQ(queue().sent().size(), options.tx_queue_frames) << "the first fragment left";
  EXPECT_EQ(Counter("ring", "fragments_sent"), 1u);
  EXPECT_EQ(counters.sent, sent);
  EXPECT_EQ(counters.sent_bytes, bytes);
  queue().CompleteSends();
  EXPECT_EQ(SendTo(socket, kStranger, std::string(4'000, 'f')), SendResult::kSent);
  EXPECT_EQ(counters.sent_bytes, bytes + 4'000);
  EXPECT_EQ(Counter("ring", "fragments_sent"), 4u);
}

TEST_F(UdpSendTest, TheNeighboursQueueIsBounded) {
  options.neighbour_queue = 2;
  Open();
  const Handle socket = OpenSocket(7000);
  EXPECT_EQ(SendTo(socket, kStranger, "1"), SendResult::kQueued);
  EXPECT_EQ(SendTo(socket, kStranger, "2"), SendResult::kQueued);
  EXPECT_EQ(SendTo(socket, kStranger, "3"), SendResult::kRefusedNeighbour);
}

TEST_F(UdpSendTest, AChangedMtuIsFollowedButNeverAboveWhatABufferHolds) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  const std::string long_payload(3'000, 'm');
  const auto frames = [&] {
    queue().sent().clear();
    EXPECT_EQ(Send(socket, long_payload), SendResult::kSent);
    return queue().sent().size();
  };
  EXPECT_EQ(frames(), 3u);
  kernel->tables().interfaces[0].mtu = 600;
  kernel->Publish();
  PollAll();
  EXPECT_EQ(frames(), 6u);
  kernel->tables().interfaces[0].mtu = 9'000;
  kernel->Publish();
  PollAll();
  EXPECT_EQ(frames(), 3u);
}

TEST_F(UdpSendTest, AnMtuBelowWhatEveryLinkCarriesIsTakenForThat) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  for (const uint32_t mtu : {20u, 28u, 60u}) {
    kernel->tables().interfaces[0].mtu = mtu;
    kernel->Publish();
    PollAll();
    queue().sent().clear();
    EXPECT_EQ(Send(socket, std::string(100, 'm')), SendResult::kSent) << mtu;
    // 48 bytes fit behind each header, 8 of UDP's in the first.
    EXPECT_EQ(queue().sent().size(), 3u) << mtu;
  }
}

// Their counts run on their own, and a receiver tells fragments of two datagrams apart by them.
TEST_F(UdpSendTest, RingsDoNotBeginTheIdentificationsOfFragmentsAtOneNumber) {
  std::set<uint16_t> ids;
  for (int i = 0; i < 3; ++i) {
    ring.reset();
    engine.reset();
    Open();
    const Handle socket = OpenSocket(7000);
    Connect(socket, kPeer);
    EXPECT_EQ(Send(socket, std::string(2'000, 'f')), SendResult::kSent);
    ids.insert(base::LoadBe16(&queue().sent()[0].bytes[wire::kEthernetHeaderBytes + 4]));
  }
  EXPECT_GT(ids.size(), 1u);
}

TEST_F(UdpSendTest, ADatagramThatRoutersMayCutHasAnIdentificationOfItsOwn) {
  Open();
  const Handle socket = OpenSocket(7000);
  ring->udp().Find(socket)->settings.dont_fragment = false;
  Connect(socket, kPeer);
  // In the WQE, gathered, in a burst, and waiting for a neighbour.
  EXPECT_EQ(Send(socket, "short"), SendResult::kSent);
  EXPECT_EQ(Send(socket, "short"), SendResult::kSent);
  EXPECT_EQ(Send(socket, std::string(1'000, 'l')), SendResult::kSent);
  const nic::TxPayload payload{.data = reinterpret_cast<const uint8_t*>("burst"), .length = 5};
  SendResult last;
  EXPECT_EQ(ring->udp().SendBurst(ring->udp().Find(socket), {&payload, 1}, 0, &last), 1u);
  EXPECT_EQ(SendTo(socket, kStranger, "waits"), SendResult::kQueued);
  kernel->Answer(kStranger.address, wire::MacAddress({2, 0, 0, 0, 0, 0x77}));
  PollAll();
  std::set<uint16_t> ids;
  size_t datagrams = 0;
  for (const SentFrame& frame : queue().sent()) {
    wire::UdpFrame udp;
    if (wire::ParseUdpFrame(frame.bytes.data(), frame.bytes.size(), wire::kAllChecksumsVerified,
                            &udp) != wire::FrameVerdict::kUdp) {
      continue;  // ARP.
    }
    ++datagrams;
    EXPECT_EQ(base::LoadBe16(&frame.bytes[udp.ip_offset + 6]), 0);
    ids.insert(base::LoadBe16(&frame.bytes[udp.ip_offset + 4]));
  }
  EXPECT_EQ(datagrams, 5u);
  EXPECT_EQ(ids.size(), datagrams);
}

TEST_F(UdpSendTest, AChangedNeighbourTakesEffectOnOpenSockets) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  const wire::MacAddress moved({2, 0, 0, 0, 0, 0x99});
  kernel->tables().neighbours[0].mac = moved;
  kernel->Publish();
  PollAll();
  EXPECT_EQ(Send(socket, "x"), SendResult::kSent);
  EXPECT_EQ(Destination(queue().sent()[0]), moved);
}

TEST_F(UdpSendTest, ConnectTellsWhenTheNextHopIsKnown) {
  Open();
  const Handle socket = OpenSocket(7000);
  ASSERT_TRUE(ring->udp().Connect(socket, kStranger, 42).ok());
  EXPECT_TRUE(PollAll().empty());
  kernel->Answer(kStranger.address, wire::MacAddress({2, 0, 0, 0, 0, 0x77}));
  const auto done = PollAll();
  ASSERT_EQ(Kinds(done), std::vector<Kind>{Kind::kOpDone});
  EXPECT_EQ(done[0].cookie, 42u);
  EXPECT_EQ(done[0].status, 0);
}

TEST_F(UdpSendTest, BroadcastNeedsToBeAllowed) {
  Open();
  const Handle closed = OpenSocket(7000);
  const Handle open = OpenSocket({.local = {{}, 7001}, .broadcast = true});
  const wire::Endpoint everybody{wire::Ipv4Address(10, 0, 0, 255), 9};
  EXPECT_EQ(SendTo(closed, everybody, "x"), SendResult::kRefusedRoute);
  EXPECT_EQ(SendTo(open, everybody, "x"), SendResult::kSent);
  EXPECT_EQ(Destination(queue().sent()[0]), wire::MacAddress::Broadcast());
}

TEST_F(UdpSendTest, OwnMulticastIsLoopedBackOnlyWhereAsked) {
  Open();
  const Handle listener = OpenSocket({.local = {{}, 7000}, .reuse = true});
  Join(listener, kGroup);
  const Handle quiet = OpenSocket(7001);
  const Handle loud = OpenSocket({.local = {{}, 7002}, .multicast_loop = true});
  EXPECT_EQ(SendTo(quiet, {kGroup, 7000}, "quiet"), SendResult::kSent);
  EXPECT_EQ(SendTo(loud, {kGroup, 7000}, "loud"), SendResult::kSent);
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].socket, listener);
  EXPECT_EQ(got[0].flags, kLoopback | kMulticast);
  EXPECT_EQ(Text(got[0]), "loud");
  EXPECT_EQ(got[0].source_port, 7002);
  EXPECT_EQ(Destination(queue().sent()[0]), wire::MulticastMac(kGroup));
  EXPECT_EQ(Parse(queue().sent()[0]).flow.destination, kGroup);
  Release(got);
}

TEST_F(UdpSendTest, AGroupDatagramWithoutHopsStaysInTheHost) {
  Open();
  const Handle listener = OpenSocket({.local = {{}, 7000}, .reuse = true});
  Join(listener, kGroup);
  const Handle sender = OpenSocket({.local = {{}, 7002}, .multicast_loop = true});
  ring->udp().Find(sender)->settings.multicast_ttl = 0;
  for (const size_t length : {5u, 1'000u, 3'000u}) {
    queue().sent().clear();
    EXPECT_EQ(SendTo(sender, {kGroup, 7000}, std::string(length, 'h')), SendResult::kSent);
    EXPECT_FALSE(queue().sent().empty());
    for (const SentFrame& frame : queue().sent()) EXPECT_NE(frame.flags & nic::kTxWarm, 0);
    const auto got = PollAll();
    ASSERT_EQ(Kinds(got), std::vector<Kind>{Kind::kPacket});
    EXPECT_EQ(got[0].length, length);
    Release(got);
  }
}

TEST_F(UdpSendTest, AWarmSendReachesNoWire) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  EXPECT_EQ(Send(socket, "warm", {.flags = kWarm}), SendResult::kSent);
  EXPECT_NE(queue().sent()[0].flags & nic::kTxWarm, 0);
}

TEST_F(UdpSendTest, AWarmSendTellsNoWireAndIsNoneThatWasSent) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  for (const size_t length : {4, 1'000, 4'000}) {
    EXPECT_EQ(Send(socket, std::string(length, 'w'),
                   {.flags = kWarm | kSendWantWire | kSendWantDone, .cookie = length}),
              SendResult::kSent);
    queue().CompleteSends(777);
    const auto told = PollAll();
    ASSERT_EQ(Kinds(told), std::vector<Kind>{Kind::kTxDone}) << length;
    EXPECT_EQ(told[0].cookie, length);
  }
  EXPECT_EQ(ring->udp().Find(socket)->flows->counters.sent, 0u);
  EXPECT_EQ(ring->udp().Find(socket)->flows->counters.sent_bytes, 0u);
}

TEST_F(UdpSendTest, BeforeStartNothingIsSent) {
  Open(/*start=*/false);
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  EXPECT_EQ(Send(socket, "early"), SendResult::kRefusedState);
  ASSERT_TRUE(ring->Start().ok());
  EXPECT_EQ(Send(socket, "now"), SendResult::kSent);
}

TEST_F(UdpSendTest, ABrokenQueueCancelsWhatMayNotHaveLeft) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  Send(socket, "lost", {.flags = kSendWantDone | kSendWantWire, .cookie = 8});
  queue().Break();
  std::vector<Completion> got = PollAll();
  ASSERT_EQ(Kinds(got), (std::vector<Kind>{Kind::kRing, Kind::kTxDone}));
  EXPECT_EQ(got[0].event, RingEvent::kBroken);
  EXPECT_EQ(got[0].status, 4);
  EXPECT_EQ(got[1].status, ECANCELED);
  EXPECT_EQ(got[1].cookie, 8u);
  EXPECT_EQ(Send(socket, "after"), SendResult::kRefusedState);
}

TEST_F(UdpSendTest, AQueueThatStoppedIsToldThoughNobodyWaitsForASend) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  for (uint32_t i = 0; i < options.tx_queue_frames; ++i) {
    ASSERT_EQ(Send(socket, "x"), SendResult::kSent);
  }
  queue().BreakSends();
  EXPECT_EQ(ring->udp().WouldSend(ring->udp().Find(socket), 1), SendResult::kRefusedSqFull)
      << "which looked for room";
  const auto told = PollAll();
  ASSERT_EQ(Kinds(told), std::vector<Kind>{Kind::kRing});
  EXPECT_EQ(told[0].event, RingEvent::kBroken);
}

TEST_F(UdpSendTest, ADeviceThatIsPulledCancelsWhatItWillNeverComplete) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  Send(socket, "lost", {.flags = kSendWantDone, .cookie = 8});
  ring->OnPortEvent(nic::PortEvent::kDeviceRemoved);
  const std::vector<Completion> got = PollAll();
  ASSERT_EQ(Kinds(got), (std::vector<Kind>{Kind::kRing, Kind::kTxDone}));
  EXPECT_EQ(got[0].event, RingEvent::kRemoved);
  EXPECT_EQ(got[1].status, ECANCELED);
  EXPECT_EQ(got[1].cookie, 8u);
  EXPECT_EQ(Send(socket, "after"), SendResult::kRefusedState);
  ASSERT_TRUE(ring->udp().Close(socket, false).ok());
  EXPECT_EQ(Kinds(Settle()), std::vector<Kind>{Kind::kTerminated});
}

TEST_F(UdpSendTest, AQueueThatBreaksAmidTheFragmentsOfADatagramKeepsNoBuffer) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  packet::BufferPool& pool = *ring->core().device.pool;
  const uint32_t before = pool.free_count();
  queue().on_post = [this](const SentFrame&) { queue().Break(); };
  EXPECT_EQ(Send(socket, std::string(6'000, 'x')), SendResult::kRefusedState);
  EXPECT_EQ(queue().sent().size(), 1u);
  PollAll();
  EXPECT_EQ(pool.free_count(), before);
}

TEST_F(UdpSendTest, AQueueThatBreaksAmidTheFragmentsOfABufferLeavesTheCallerItsReference) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  packet::BufferPool& pool = *ring->core().device.pool;
  const uint32_t before = pool.free_count();
  packet::Buffer* buffer = pool.Acquire();
  ASSERT_NE(buffer, nullptr);
  const uint32_t length = pool.payload_bytes();
  ASSERT_GT(length, 1'500u);
  queue().on_post = [this](const SentFrame&) { queue().Break(); };
  EXPECT_EQ(ring->udp().Send(ring->udp().Find(socket),
                             {.data = buffer->data, .length = length, .buffer = buffer}, {}),
            SendResult::kRefusedState);
  EXPECT_EQ(queue().sent().size(), 1u);
  PollAll();
  EXPECT_EQ(pool.free_count(), before - 1);
  packet::BufferPool::Release(buffer);
  PollAll();
  EXPECT_EQ(pool.free_count(), before);
}

}  // namespace
}  // namespace xtreme::engine::testing
