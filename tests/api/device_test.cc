// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: a ring's interrupts, moderated; its times on the PTP clock; WQEs that a program writes
// itself by the addresses of the ring's queues; and its backup.

#include <endian.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "tests/api/api_fixture.h"

namespace xtreme::api_test {
namespace {

class DeviceTest : public ApiTest {
 protected:
  static bool Readable(int fd) {
    pollfd waiting{.fd = fd, .events = POLLIN};
    return poll(&waiting, 1, 0) == 1;
  }
  // Waits for sends that are under way, as the call says.
  xtreme_queues Take(xtreme_ring ring) {
    xtreme_queues queues = {};
    queues.size = sizeof queues;
    int code = xtreme_ring_take_queues(ring, &queues);
    for (int i = 0; code == -EAGAIN && i < 10; ++i) {
      connectx_->Step();
      xtreme_completion completion;
      xtreme_ring_poll(ring, &completion, 1, sizeof completion);
      code = xtreme_ring_take_queues(ring, &queues);
    }
    EXPECT_EQ(code, 0) << xtreme_error();
    return queues;
  }
  // A frame whole in its Ethernet segment, as the PRM lays out SEND; signalled.
  static void PostRaw(xtreme_queues* queues, const std::vector<uint8_t>& frame) {
    const uint32_t index = queues->sq_producer & (queues->sq_wqebbs - 1);
    const auto inline_bytes = static_cast<uint16_t>(frame.size());
    const uint32_t segments = (30 + frame.size() + 15) / 16;
    const uint32_t blocks = (segments + 3) / 4;
    ASSERT_LE(index + blocks, queues->sq_wqebbs);
    uint8_t* const wqe = queues->sq + index * 64;
    memset(wqe, 0, blocks * 64);
    const uint32_t control[] = {htobe32((queues->sq_producer & 0xFFFF) << 8 | 0x0A),
                                htobe32(queues->qpn << 8 | segments), htobe32(8)};
    memcpy(wqe, control, sizeof control);
    const uint16_t bytes = htobe16(inline_bytes);
    memcpy(wqe + 28, &bytes, sizeof bytes);
    memcpy(wqe + 30, frame.data(), frame.size());
    queues->sq_producer += blocks;
    std::atomic_ref<uint32_t>(*queues->sq_record)
        .store(htobe32(queues->sq_producer & 0xFFFF), std::memory_order_release);
    uint64_t doorbell;
    memcpy(&doorbell, wqe, sizeof doorbell);
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(queues->sq_register))
        .store(doorbell, std::memory_order_release);
    queues->sq_register = reinterpret_cast<uint8_t*>(
        reinterpret_cast<uintptr_t>(queues->sq_register) ^ queues->blueflame_bytes);
  }
  // The next CQE, taken; null: there is none.
  static const uint8_t* TakeCqe(xtreme_completion_queue* queue) {
    const uint8_t* cqe = queue->cqes + (queue->consumer & (queue->count - 1)) * 64;
    const uint8_t lap = (queue->consumer & queue->count) != 0;
    if ((cqe[63] & 1) != lap || cqe[63] >> 4 == 0xF) return nullptr;
    ++queue->consumer;
    *queue->record = htobe32(queue->consumer & 0xFFFFFF);
    return cqe;
  }
};

TEST_F(DeviceTest, AnInterruptWaitsForAsManyCompletionsOrForTheTime) {
  const xtreme_ring ring = OpenRing();
  OpenSocket(ring, ":9000");
  ASSERT_EQ(xtreme_ring_moderate(ring, 3, 1'000, 7), 0) << xtreme_error();
  const xtreme_completion done = Await(ring, XTREME_OP_DONE);
  EXPECT_EQ(done.cookie, 7u);
  EXPECT_EQ(done.status, 0) << done.text;
  const auto drain = [&] {
    xtreme_completion completions[8];
    int count;
    while ((count = xtreme_ring_poll(ring, completions, 8, sizeof completions[0])) > 0) {
      xtreme_release(completions, count, sizeof completions[0]);
    }
    while (xtreme_ring_arm(ring) == 1) {
      count = xtreme_ring_poll(ring, completions, 8, sizeof completions[0]);
      xtreme_release(completions, count, sizeof completions[0]);
    }
    connectx_->Step();
  };
  const int fd = xtreme_ring_fd(ring);
  drain();
  Inject(9000, "1");
  Inject(9000, "2");
  EXPECT_FALSE(Readable(fd));
  Inject(9000, "3");
  EXPECT_TRUE(Readable(fd)) << "three wait";
  drain();
  Inject(9000, "alone");
  connectx_->Step(900'000);
  EXPECT_FALSE(Readable(fd));
  connectx_->Step(200'000);
  EXPECT_TRUE(Readable(fd)) << "its time is over";
}

TEST_F(DeviceTest, NewQueuesAreModeratedAsTheOldOnesWere) {
  const xtreme_ring ring = OpenRing();
  OpenSocket(ring, ":9000");
  ASSERT_EQ(xtreme_ring_moderate(ring, 2, 1'000, 7), 0) << xtreme_error();
  EXPECT_EQ(Await(ring, XTREME_OP_DONE).status, 0);
  ASSERT_EQ(xtreme_ring_reset(ring, 9), 0) << xtreme_error();
  EXPECT_EQ(Await(ring, XTREME_OP_DONE).cookie, 9u);
  xtreme_completion completion;
  while (xtreme_ring_poll(ring, &completion, 1, sizeof completion) > 0) {
  }
  ASSERT_EQ(xtreme_ring_arm(ring), 0);
  connectx_->Step();
  Inject(9000, "1");
  EXPECT_FALSE(Readable(xtreme_ring_fd(ring)));
  Inject(9000, "2");
  EXPECT_TRUE(Readable(xtreme_ring_fd(ring))) << "two wait";
}

TEST_F(DeviceTest, ModerationThatTheDeviceCannotDoIsRefusedWithItsRange) {
  const xtreme_ring ring = OpenRing();
  for (const auto& [count, us] : {std::pair<uint16_t, uint16_t>{8, 0xFFFF}, {0, 10}, {10, 0}}) {
    ASSERT_EQ(xtreme_ring_moderate(ring, count, us, 1), 0);
    const xtreme_completion done = Await(ring, XTREME_OP_DONE);
    EXPECT_EQ(done.status, EINVAL);
    ASSERT_NE(done.text, nullptr);
    EXPECT_NE(std::string_view(done.text).find("1 to 4095"), std::string_view::npos) << done.text;
  }
  EXPECT_EQ(xtreme_ring_moderate({}, 0, 0, 0), -EBADF);
}

TEST_F(DeviceTest, TimesAreOnThePtpClockOfTheNicIfAsked) {
  connectx::Device& device = connectx_->device(0);
  // TAI of 2025, which no CLOCK_MONOTONIC is near.
  device.AdjustPhc(1'750'000'000'000'000'000, 0);
  connectx_->Step(/*advance_ns=*/1'000);
  xtreme_ring_options options = Options("xt0");
  ASSERT_EQ(xtreme_ring_options_set(&options, "hw_time", "ptp"), 0) << xtreme_error();
  const xtreme_ring ring = OpenRing(options);
  OpenSocket(ring, "10.1.0.1:7000");
  Inject(7000, "tick");
  const int64_t at_most = device.PhcAt(connectx_->clock().Now());
  const xtreme_completion packet = Await(ring, XTREME_PACKET);
  EXPECT_NE(packet.flags & XTREME_PTP_TIME, 0);
  EXPECT_LE(packet.hw_time_ns, at_most + 1'000);
  EXPECT_GE(packet.hw_time_ns, at_most - 5'000'000'000);
  xtreme_release(&packet, 1, sizeof packet);

  const xtreme_ring other = OpenRing();
  OpenSocket(other, "10.1.0.1:7001");
  Inject(7001, "tick");
  const xtreme_completion plain = Await(other, XTREME_PACKET);
  EXPECT_EQ(plain.flags & XTREME_PTP_TIME, 0);
  xtreme_release(&plain, 1, sizeof plain);
  EXPECT_EQ(xtreme_ring_options_set(&options, "hw_time", "tai"), -EINVAL);
}

TEST_F(DeviceTest, ASocketsRateIsSetByACallThatEndsAsOpDone) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  Connect(ring, socket, "10.1.0.2:5000");
  ASSERT_EQ(xtreme_socket_set_rate(socket, 1'000'000, 1'000, 1'000, 7), 0) << xtreme_error();
  const xtreme_completion done = Await(ring, XTREME_OP_DONE);
  EXPECT_EQ(done.cookie, 7u);
  EXPECT_EQ(done.socket.value, socket.value);
  EXPECT_EQ(done.status, 0) << done.text;
  EXPECT_EQ(xtreme_send(socket, "paced", 5, nullptr), XTREME_SENT);

  ASSERT_EQ(xtreme_socket_set_rate(socket, ~uint64_t{0} / 16, 0, 0, 8), 0);
  const xtreme_completion refused = Await(ring, XTREME_OP_DONE);
  EXPECT_EQ(refused.status, EINVAL) << "more than the device can";
  EXPECT_EQ(xtreme_socket_set_rate(socket, 1'000'000, 0, 65'536, 9), -EINVAL);
  EXPECT_EQ(xtreme_socket_set_rate({}, 0, 0, 0, 0), -EBADF);
}

TEST_F(DeviceTest, AProgramsOwnWqeLeavesByTheAddressesOfTheQueue) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  Connect(ring, socket, "10.1.0.2:5000");
  ASSERT_EQ(xtreme_send(socket, "library", 7, nullptr), XTREME_SENT);
  xtreme_queues queues = Take(ring);
  EXPECT_EQ(Sent(), std::vector<std::string>{"library"});
  for (const char* payload : {"raw 1", "raw 2", "raw 3"}) {
    PostRaw(&queues, engine::testing::MakeFrame({.payload = payload}));
    EXPECT_EQ(Sent(), std::vector<std::string>{payload});
    const uint8_t* cqe = TakeCqe(&queues.send_cq);
    ASSERT_NE(cqe, nullptr) << payload;
    EXPECT_EQ(cqe[63] >> 4, 0) << "a completed request";
  }
  EXPECT_EQ(TakeCqe(&queues.send_cq), nullptr);
}

TEST_F(DeviceTest, WhatArrivesAtQueuesThatWereTakenIsTheProgramsToFind) {
  const xtreme_ring ring = OpenRing();
  xtreme_udp_options options = UdpOptions("10.1.0.1:9000");
  options.flow_tag = 0xABCDEF;
  OpenSocket(ring, options);
  xtreme_queues queues = Take(ring);
  Inject(9000, "by hand");
  xtreme_completion completion;
  EXPECT_EQ(xtreme_ring_poll(ring, &completion, 1, sizeof completion), 0);
  const uint8_t* cqe = TakeCqe(&queues.receive_cq);
  ASSERT_NE(cqe, nullptr);
  uint32_t flow_tag;
  memcpy(&flow_tag, cqe + 56, sizeof flow_tag);
  EXPECT_EQ(be32toh(flow_tag) & 0xFFFFFF, 0xABCDEFu);
  uint16_t counter;
  memcpy(&counter, cqe + 60, sizeof counter);
  const uint8_t* segment = queues.rq + (be16toh(counter) & (queues.rq_segments - 1)) * 16;
  uint64_t address;
  memcpy(&address, segment + 8, sizeof address);
  const auto* frame = reinterpret_cast<const char*>(be64toh(address));
  EXPECT_EQ(std::string_view(frame + 42, 7), "by hand");
}

TEST_F(DeviceTest, TheRingSendsAndReceivesAgainAfterAReset) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  Connect(ring, socket, "10.1.0.2:5000");
  xtreme_queues queues = Take(ring);
  EXPECT_EQ(xtreme_send(socket, "x", 1, nullptr), XTREME_REFUSED_STATE);
  EXPECT_EQ(xtreme_ring_take_queues(ring, &queues), -EALREADY);
  ASSERT_EQ(xtreme_ring_reset(ring, 9), 0) << xtreme_error();
  const xtreme_completion done = Await(ring, XTREME_OP_DONE);
  EXPECT_EQ(done.cookie, 9u);
  EXPECT_EQ(done.status, 0);
  ASSERT_EQ(xtreme_send(socket, "again", 5, nullptr), XTREME_SENT);
  EXPECT_EQ(Sent(), std::vector<std::string>{"again"});
  Inject(9000, "heard");
  const xtreme_completion packet = Await(ring, XTREME_PACKET);
  EXPECT_EQ(Text(packet), "heard");
  xtreme_release(&packet, 1, sizeof packet);
}

TEST_F(DeviceTest, QueuesMayBeTakenAfterAsManySendsAsStoodBeforeTheLastTaking) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  Connect(ring, socket, "10.1.0.2:5000");
  for (int sends = 1; sends <= 3; ++sends) {
    ASSERT_EQ(xtreme_ring_reset(ring, 9), 0) << xtreme_error();
    ASSERT_EQ(Await(ring, XTREME_OP_DONE).cookie, 9u);
    for (int i = 0; i < sends; ++i) ASSERT_EQ(xtreme_send(socket, "x", 1, nullptr), XTREME_SENT);
    ASSERT_NE(Take(ring).sq, nullptr) << sends << " sends";
  }
}

// Nothing that was posted ever leaves them: who polls until it has waits for ever.
TEST_F(DeviceTest, QueuesThatStoppedAreNotTaken) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  Connect(ring, socket, "10.1.0.2:5000");
  xtreme_buffer* buffer;
  uint8_t* data;
  uint32_t capacity;
  ASSERT_EQ(xtreme_buffer_acquire(ring, &buffer, &data, &capacity), 0);
  // No memory of the buffer's: the device may not read it.
  static uint8_t elsewhere[1'000];
  ASSERT_EQ(xtreme_send_buffer(socket, nullptr, buffer, elsewhere, sizeof elsewhere, nullptr),
            XTREME_SENT);
  EXPECT_EQ(Await(ring, XTREME_RING).event, XTREME_BROKEN);
  xtreme_queues queues = {};
  queues.size = sizeof queues;
  EXPECT_EQ(xtreme_ring_take_queues(ring, &queues), -ENETDOWN);
  EXPECT_STREQ(xtreme_error(), "take queues: they have stopped, and a reset makes new ones");
  ASSERT_EQ(xtreme_ring_reset(ring, 9), 0) << xtreme_error();
  EXPECT_EQ(Await(ring, XTREME_OP_DONE).status, 0);
  EXPECT_NE(Take(ring).sq, nullptr);
}

TEST_F(DeviceTest, ABackupIsLookedAtWhenTheRingIsOpened) {
  xtreme_ring_options options = Options("xt0");
  ASSERT_EQ(xtreme_ring_options_set(&options, "backup_interface", "xt1"), 0) << xtreme_error();
  OpenRing(options);
  xtreme_ring ring;
  options.backup_interface = "xt0";
  EXPECT_EQ(xtreme_ring_open(&options, &ring), -EINVAL);
  EXPECT_NE(std::string_view(xtreme_error()).find("on the same port"), std::string_view::npos);
  options.backup_interface = "xt9";
  EXPECT_EQ(xtreme_ring_open(&options, &ring), -ENODEV);
  EXPECT_NE(std::string_view(xtreme_error()).find("xt9"), std::string_view::npos);
}

TEST_F(DeviceTest, TakingNamesWhatIsWrong) {
  xtreme_queues queues = {};
  queues.size = 8;
  const xtreme_ring ring = OpenRing();
  EXPECT_EQ(xtreme_ring_take_queues(ring, &queues), -EINVAL);
  EXPECT_EQ(xtreme_ring_take_queues({}, &queues), -EBADF);
}

}  // namespace
}  // namespace xtreme::api_test
