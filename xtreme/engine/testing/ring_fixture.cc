// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/testing/ring_fixture.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "stack/wire/ethernet.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/udp.h"
#include "xtreme/engine/control_thread.h"

namespace xtreme::engine::testing {

std::vector<uint8_t> MakeFrame(const FrameFields& fields) {
  const std::span<const uint8_t> payload(
      reinterpret_cast<const uint8_t*>(fields.payload.data()), fields.payload.size());
  const wire::Ipv4Address to = fields.destination.address;
  const wire::EthernetRepr ethernet{
      .destination = to.IsMulticast()          ? wire::MulticastMac(to)
                     : to.IsLimitedBroadcast() ? wire::MacAddress::Broadcast()
                                               : wire::MacAddress({2, 0, 0, 0, 0, 1}),
      .source = wire::MacAddress({2, 0, 0, 0, 0, 2})};
  const wire::Ipv4Repr ip{
      .source = fields.source.address,
      .destination = to,
      .more_fragments = (fields.fragment_field & wire::kIpv4MoreFragments) != 0,
      .fragment_offset_bytes =
          static_cast<uint16_t>(8 * (fields.fragment_field & wire::kIpv4FragmentOffsetMask)),
      .payload_bytes = static_cast<uint16_t>(wire::kUdpHeaderBytes + payload.size())};
  const wire::UdpRepr udp{.source_port = fields.source.port,
                          .destination_port = fields.destination.port};
  std::vector<uint8_t> frame(42 + payload.size());
  const std::span<uint8_t> bytes(frame);
  ethernet.Emit(bytes);
  ip.Emit(bytes.subspan(14));
  udp.Emit(bytes.subspan(34), ip.source, ip.destination, payload);
  std::copy(payload.begin(), payload.end(), frame.begin() + 42);
  return frame;
}

RingTest::RingTest() {
  options.interface_name = MemoryKernel::kInterface;
  options.rx_buffers = 512;
  options.rx_queue_frames = 64;
  options.tx_queue_frames = 64;
  options.signal_every = 8;
  options.hugepages = Hugepages::kNever;
  options.number = 5;
}

RingTest::~RingTest() {
  ring.reset();
  engine.reset();
}

void RingTest::Open(bool start) {
  auto own_kernel = std::make_unique<MemoryKernel>(link);
  kernel = own_kernel.get();
  Engine::Options engine_options;
  engine_options.kernel = std::move(own_kernel);
  engine_options.open_nic = [this](const std::string&)
      -> absl::StatusOr<std::unique_ptr<nic::Nic>> {
    auto made = std::make_unique<MemoryNic>(nic_options);
    nic = made.get();
    ++nic_opened;
    return made;
  };
  engine_options.ticks = {.read = [](void* test) -> uint64_t {
                            auto* own = static_cast<RingTest*>(test);
                            return own->now.fetch_add(own->look_ns);
                          },
                          .context = this};
  engine_options.clock_period = clock_period;
  engine_options.counters_period = counters_period;
  engine_options.send_patience = {};  // Nobody runs the device meanwhile.
  auto created = Engine::Create(std::move(engine_options));
  ASSERT_TRUE(created.ok()) << created.status();
  engine = *std::move(created);
  auto opened = Ring::Open(engine.get(), options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  ring = *std::move(opened);
  if (!start) return;
  ASSERT_TRUE(ring->Start().ok());
}

Handle RingTest::OpenSocket(UdpOptions udp) {
  Handle handle = 0;
  const Outcome opened = ring->udp().Open(udp, &handle);
  EXPECT_TRUE(opened.ok()) << opened.text;
  for (const Completion& completion : Settle()) {
    EXPECT_EQ(completion.kind, Kind::kOpDone);
    EXPECT_EQ(completion.status, 0) << (completion.text == nullptr ? "" : completion.text);
  }
  return handle;
}

void RingTest::Join(Handle socket, wire::Ipv4Address group) {
  const Outcome joined = ring->udp().Join(socket, {group, 0}, std::nullopt, 0, 1);
  ASSERT_TRUE(joined.ok()) << joined.text;
  const auto done = Settle();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, 0);
}

void RingTest::Connect(Handle socket, wire::Endpoint peer) {
  const Outcome connected = ring->udp().Connect(socket, peer, 2);
  ASSERT_TRUE(connected.ok()) << connected.text;
  const auto done = PollAll();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, 0);
}

SendResult RingTest::Send(Handle socket, std::string_view payload, SendOptions send_options) {
  UdpSocket* found = ring->udp().Find(socket);
  if (found == nullptr) return SendResult::kRefusedState;
  return ring->udp().Send(
      found,
      {.data = reinterpret_cast<const uint8_t*>(payload.data()), .length = payload.size()},
      send_options);
}

std::vector<Completion> RingTest::Settle() {
  engine->control().RunAndWait([] {});
  return PollAll();
}

std::vector<Completion> RingTest::PollOnce(uint32_t max) {
  std::vector<Completion> completions(max);
  // What is not written shows.
  if (max != 0) memset(static_cast<void*>(completions.data()), 0xA5, max * sizeof(Completion));
  completions.resize(ring->Poll(completions.data(), max, sizeof(Completion)));
  return completions;
}

std::vector<Completion> RingTest::PollAll(uint32_t max) {
  std::vector<Completion> all;
  // Some polls only look at the clock once in so many.
  for (int idle = 0; idle < 40; ++idle) {
    const std::vector<Completion> some = PollOnce(max);
    if (!some.empty()) idle = 0;
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

void RingTest::Release(const std::vector<Completion>& completions) {
  for (const Completion& completion : completions) {
    if (completion.kind == Kind::kPacket) packet::BufferPool::ReleaseChain(completion.buffer);
  }
}

std::vector<Kind> RingTest::Kinds(const std::vector<Completion>& completions) {
  std::vector<Kind> kinds;
  for (const Completion& completion : completions) kinds.push_back(completion.kind);
  return kinds;
}

uint64_t RingTest::Counter(std::string_view scope, std::string_view name) {
  uint64_t found = ~uint64_t{0};
  ring->VisitCounters([&](std::string_view in, std::string_view called, std::string_view,
                          uint64_t value) {
    if (in == scope && called == name) found = value;
  });
  return found;
}

}  // namespace xtreme::engine::testing
