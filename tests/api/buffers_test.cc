// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: buffers, their references and chains.

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/api/api_fixture.h"

namespace xtreme::api_test {
namespace {

using BuffersTest = ApiTest;

TEST_F(BuffersTest, ABufferIsFreeAfterItsLastRelease) {
  const xtreme_ring ring = OpenRing();
  xtreme_buffer* buffer;
  uint8_t* data;
  uint32_t capacity;
  const uint64_t free = Counter(ring, "pool", "free");
  ASSERT_EQ(xtreme_buffer_acquire(ring, &buffer, &data, &capacity), 0);
  EXPECT_EQ(xtreme_buffer_data(buffer), data);
  EXPECT_EQ(xtreme_buffer_next(buffer), nullptr);
  xtreme_buffer_ref(buffer);
  EXPECT_EQ(xtreme_buffer_release(buffer), 0);
  EXPECT_EQ(Counter(ring, "pool", "free"), free - 1);
  EXPECT_EQ(xtreme_buffer_release(buffer), 1);
  EXPECT_EQ(Counter(ring, "pool", "free"), free);
}

// Counts what is asked of it.
struct Memory {
  static void* Allocate(void* memory, size_t bytes) {
    auto* const self = static_cast<Memory*>(memory);
    self->bytes.resize(self->none ? 0 : bytes);
    return self->none ? nullptr : self->bytes.data();
  }
  static void Release(void* memory, void* given) {
    auto* const self = static_cast<Memory*>(memory);
    self->released += given == self->bytes.data();
  }
  xtreme_ring_options Options(xtreme_ring_options options) {
    options.memory_allocate = Allocate;
    options.memory_release = Release;
    options.memory_context = this;
    return options;
  }
  bool none = false;
  std::vector<uint8_t> bytes;
  std::atomic<int> released{0};
};

TEST_F(BuffersTest, TheyLieInTheProgramsMemoryUntilTheLastOneIsReleased) {
  Memory memory;
  const xtreme_ring ring = OpenRing(memory.Options(Options("xt0")));
  OpenSocket(ring, ":9000");
  Inject(9000, "mine");
  const xtreme_completion packet = Await(ring, XTREME_PACKET);
  EXPECT_GE(packet.data, memory.bytes.data());
  EXPECT_LT(packet.data, memory.bytes.data() + memory.bytes.size());
  ASSERT_EQ(xtreme_ring_close(ring), 0);
  usleep(20'000);
  EXPECT_EQ(memory.released, 0);
  EXPECT_EQ(Text(packet), "mine");
  xtreme_release(&packet, 1, sizeof packet);
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLongNs);
  while (memory.released == 0 && std::chrono::steady_clock::now() < end) usleep(1'000);
  EXPECT_EQ(memory.released, 1);
}

TEST_F(BuffersTest, AProgramWithoutMemoryHasNoRing) {
  Memory memory;
  memory.none = true;
  xtreme_ring_options options = memory.Options(Options("xt0"));
  xtreme_ring ring;
  EXPECT_EQ(xtreme_ring_open(&options, &ring), -ENOMEM);
  EXPECT_NE(std::string_view(xtreme_error()).find("it has none"), std::string_view::npos);
  options.memory_release = nullptr;
  EXPECT_EQ(xtreme_ring_open(&options, &ring), -EINVAL);
  EXPECT_EQ(memory.released, 0);
}

TEST_F(BuffersTest, AnEmptyPoolIsEnobufs) {
  const xtreme_ring ring = OpenRing();
  std::vector<xtreme_buffer*> held;
  xtreme_buffer* buffer;
  uint8_t* data;
  uint32_t capacity;
  int code = 0;
  while ((code = xtreme_buffer_acquire(ring, &buffer, &data, &capacity)) == 0) {
    held.push_back(buffer);
  }
  EXPECT_EQ(code, -ENOBUFS);
  EXPECT_STREQ(xtreme_error(), "acquire buffer: none of the pool is free");
  for (xtreme_buffer* each : held) xtreme_buffer_release(each);
  EXPECT_EQ(xtreme_buffer_acquire({}, &buffer, &data, &capacity), -EBADF);
}

TEST_F(BuffersTest, APacketIsHeldAndReleasedByAnotherThread) {
  const xtreme_ring ring = OpenRing();
  OpenSocket(ring, ":9000");
  Inject(9000, "held");
  xtreme_completion packet = Await(ring, XTREME_PACKET);
  EXPECT_EQ(Text(packet), "held");
  EXPECT_GE(xtreme_buffer_length(packet.buffer), packet.length);
  std::thread([&packet] { xtreme_release(&packet, 1, sizeof packet); }).join();
  // Taken back when the pool would be empty without it.
  std::vector<xtreme_buffer*> all;
  xtreme_buffer* buffer;
  uint8_t* data;
  uint32_t capacity;
  while (xtreme_buffer_acquire(ring, &buffer, &data, &capacity) == 0) all.push_back(buffer);
  EXPECT_EQ(Counter(ring, "pool", "foreign_returns"), 1u);
  for (xtreme_buffer* each : all) xtreme_buffer_release(each);
}

TEST_F(BuffersTest, AHeldPacketOutlivesItsRing) {
  const xtreme_ring ring = OpenRing();
  OpenSocket(ring, ":9000");
  Inject(9000, "outlives");
  xtreme_completion packet = Await(ring, XTREME_PACKET);
  ASSERT_EQ(xtreme_ring_close(ring), 0);
  EXPECT_EQ(Text(packet), "outlives");
  xtreme_release(&packet, 1, sizeof packet);
}

// A datagram in two fragments, to a ring that reassembles.
TEST_F(BuffersTest, AChainIsWalkedCopiedAndReleasedWhole) {
  xtreme_ring_options options = Options("xt0");
  options.fragments = 1;
  const xtreme_ring ring = OpenRing(options);
  OpenSocket(ring, ":9000");
  const std::string whole = std::string(1'000, 'a') + std::string(500, 'b');
  engine::testing::FrameFields fields;
  fields.source = {wire::Ipv4Address(10, 1, 0, 2), 5000};
  fields.destination = {wire::Ipv4Address(10, 1, 0, 1), 9000};
  fields.payload = whole;
  const std::vector<uint8_t> frame = engine::testing::MakeFrame(fields);
  // Cut behind 1,008 bytes of UDP: header and 1,000 of payload.
  const auto fragment = [&](size_t from, size_t length, bool more) {
    std::vector<uint8_t> cut(frame.begin(), frame.begin() + 34);
    cut.insert(cut.end(), frame.begin() + 34 + static_cast<long>(from),
               frame.begin() + 34 + static_cast<long>(from + length));
    const wire::Ipv4Repr ip{.source = fields.source.address,
                            .destination = fields.destination.address,
                            .more_fragments = more,
                            .fragment_offset_bytes = static_cast<uint16_t>(from),
                            .payload_bytes = static_cast<uint16_t>(length)};
    ip.Emit(std::span<uint8_t>(cut).subspan(14));
    ends_[0][1]->Transmit(cut, 0);
  };
  fragment(0, 1'008, true);
  fragment(1'008, 500, false);
  xtreme_completion packet = Await(ring, XTREME_PACKET);
  EXPECT_NE(packet.flags & XTREME_CHAINED, 0);
  EXPECT_EQ(packet.length, 1'500u);
  EXPECT_EQ(packet.count, 2u);
  EXPECT_EQ(Text(packet), whole);
  std::string part(1'200, 0);
  EXPECT_EQ(xtreme_copy_out(&packet, part.data(), part.size()), 1'200u);
  EXPECT_EQ(part, whole.substr(0, 1'200));
  xtreme_buffer* second = xtreme_buffer_next(packet.buffer);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(xtreme_buffer_length(second), 500u);
  EXPECT_EQ(xtreme_buffer_data(second)[0], 'b');
  EXPECT_EQ(xtreme_buffer_next(second), nullptr);
  // One link may stay when the rest goes.
  xtreme_buffer_ref(second);
  xtreme_release(&packet, 1, sizeof packet);
  EXPECT_EQ(xtreme_buffer_data(second)[499], 'b');
  EXPECT_EQ(xtreme_buffer_release(second), 1);
}

TEST_F(BuffersTest, ASocketHoldsNoMoreThanItMay) {
  const xtreme_ring ring = OpenRing();
  xtreme_udp_options udp = UdpOptions(":9000");
  udp.max_held = 1;
  OpenSocket(ring, udp);
  Inject(9000, "kept");
  xtreme_completion kept = Await(ring, XTREME_PACKET);
  Inject(9000, "dropped");
  xtreme_completion dropped = Await(ring, XTREME_RING);
  EXPECT_EQ(dropped.event, XTREME_DROPPED);
  EXPECT_EQ(dropped.layer, uint64_t{XTREME_LAYER_LIBRARY});
  EXPECT_EQ(Counter(ring, "drop", "held_limit"), 1u);
  xtreme_release(&kept, 1, sizeof kept);
  Inject(9000, "again");
  xtreme_completion again = Await(ring, XTREME_PACKET);
  EXPECT_EQ(Text(again), "again");
  xtreme_release(&again, 1, sizeof again);
}

}  // namespace
}  // namespace xtreme::api_test
