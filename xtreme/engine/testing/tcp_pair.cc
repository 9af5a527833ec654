// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/testing/tcp_pair.h"

#include <cstring>
#include <span>
#include <utility>

#include "stack/base/byte_order.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/send_flow.h"

namespace xtreme::engine::testing {

TcpEnd::TcpEnd(const MemoryKernel::Link& link, const RingOptions& options,
               const MemoryNic::Options& nic_options, std::atomic<uint64_t>* now) {
  auto own_kernel = std::make_unique<MemoryKernel>(link);
  kernel = own_kernel.get();
  MemoryNic::Options own_nic = nic_options;
  own_nic.mac = link.own_mac;
  Engine::Options made;
  made.kernel = std::move(own_kernel);
  made.open_nic = [this, own_nic](const std::string&)
      -> absl::StatusOr<std::unique_ptr<nic::Nic>> {
    auto opened = std::make_unique<MemoryNic>(own_nic);
    nic = opened.get();
    return opened;
  };
  made.ticks = {.read = [](void* time) -> uint64_t {
                  return *static_cast<std::atomic<uint64_t>*>(time);
                },
                .context = now};
  made.clock_period = made.counters_period = base::Seconds(3600);
  made.send_patience = {};  // Nobody runs the device meanwhile.
  auto created = Engine::Create(std::move(made));
  EXPECT_TRUE(created.ok()) << created.status();
  engine = *std::move(created);
  auto opened = Ring::Open(engine.get(), options);
  EXPECT_TRUE(opened.ok()) << opened.status();
  ring = *std::move(opened);
  EXPECT_TRUE(ring->Start().ok());
}

TcpEnd::TcpEnd(TcpEnd& beside, const RingOptions& options)
    : first_queue(static_cast<uint32_t>(beside.nic->queues())),
      kernel(beside.kernel),
      nic(beside.nic),
      engine(beside.engine) {
  auto opened = Ring::Open(engine.get(), options);
  EXPECT_TRUE(opened.ok()) << opened.status();
  ring = *std::move(opened);
  EXPECT_TRUE(ring->Start().ok());
}

TcpEnd::~TcpEnd() {
  Clear();
  ring.reset();
  engine.reset();
}

void TcpEnd::Poll(uint32_t max) {
  std::vector<Completion> some(max);
  // Some polls only look at the clock once in so many.
  for (int idle = 0; idle < 17; ++idle) {
    // What is not written shows.
    memset(static_cast<void*>(some.data()), 0xA5, max * sizeof(Completion));
    const uint32_t count = ring->Poll(some.data(), max, sizeof(Completion));
    if (count > 0) idle = 0;
    got.insert(got.end(), some.begin(), some.begin() + count);
  }
}

void TcpEnd::Settle() {
  engine->control().RunAndWait([] {});
  Poll();
}

Handle TcpEnd::Listen(uint16_t port, const TcpSettings& settings) {
  Handle handle = 0;
  const Outcome opened =
      tcp().OpenListener({.local = {{}, port}, .user_data = 99, .settings = settings}, &handle);
  EXPECT_TRUE(opened.ok()) << opened.text;
  Settle();
  EXPECT_EQ(Kinds(), std::vector<Kind>{Kind::kOpDone});
  EXPECT_EQ(got[0].status, 0);
  Clear();
  return handle;
}

Handle TcpEnd::Connect(const wire::Endpoint& peer, const TcpSettings& settings) {
  Handle handle = 0;
  const Outcome started = tcp().Connect({.peer = peer, .settings = settings}, &handle);
  EXPECT_TRUE(started.ok()) << started.text;
  Settle();
  return handle;
}

SendResult TcpEnd::Send(Handle socket, std::string_view bytes, SendOptions send_options) {
  TcpSocket* const found = tcp().Find(socket);
  if (found == nullptr) return SendResult::kRefusedState;
  return tcp().Send(
      found, {.data = reinterpret_cast<const uint8_t*>(bytes.data()), .length = bytes.size()},
      send_options);
}

std::vector<Completion> TcpEnd::Of(Kind kind) const {
  std::vector<Completion> of_kind;
  for (const Completion& completion : got) {
    if (completion.kind == kind) of_kind.push_back(completion);
  }
  return of_kind;
}

std::vector<Kind> TcpEnd::Kinds() const {
  std::vector<Kind> kinds;
  for (const Completion& completion : got) kinds.push_back(completion.kind);
  return kinds;
}

std::string TcpEnd::Bytes(Handle socket) const {
  std::string bytes;
  for (const Completion& completion : Of(Kind::kPacket)) {
    if (completion.socket != socket) continue;
    const size_t before = bytes.size();
    for (const packet::Buffer* link = completion.buffer; link != nullptr; link = link->next) {
      bytes.append(reinterpret_cast<const char*>(link->data), link->length);
    }
    EXPECT_EQ(bytes.size() - before, completion.length);
  }
  return bytes;
}

void TcpEnd::Clear() {
  for (const Completion& completion : got) {
    if (completion.kind == Kind::kPacket) packet::BufferPool::ReleaseChain(completion.buffer);
  }
  got.clear();
}

uint64_t TcpEnd::Counter(std::string_view scope, std::string_view name) {
  uint64_t found = ~uint64_t{0};
  ring->VisitCounters([&](std::string_view in, std::string_view called, std::string_view,
                          uint64_t value) {
    if (in == scope && called == name) found = value;
  });
  return found;
}

TcpPairTest::TcpPairTest() {
  options.interface_name = MemoryKernel::kInterface;
  options.rx_buffers = 1024;
  options.rx_queue_frames = 128;
  options.tx_queue_frames = 64;
  options.signal_every = 8;
  options.hugepages = Hugepages::kNever;
  options.number = 5;
}

void TcpPairTest::Open() {
  const wire::MacAddress mac_a({2, 0, 0, 0, 0, 1});
  const wire::MacAddress mac_b({2, 0, 0, 0, 0, 2});
  MemoryKernel::Link link_a{kA, mac_a, kB, mac_b}, link_b{kB, mac_b, kA, mac_a};
  link_a.vlan_id = link_b.vlan_id = vlan_id;
  link_a.mtu = link_b.mtu = nic_options.mtu;
  a = std::make_unique<TcpEnd>(link_a, options, nic_options, &now);
  b = std::make_unique<TcpEnd>(link_b, options, nic_options, &now);
}

void TcpPairTest::OpenConnection(const TcpSettings& client_settings,
                                 const TcpSettings& server_settings) {
  if (a == nullptr) Open();
  listener = b->Listen(kPort, server_settings);
  client = a->Connect({kB, kPort}, client_settings);
  Run();
  ASSERT_EQ(a->Kinds(), std::vector<Kind>{Kind::kEstablished});
  ASSERT_EQ(b->Kinds(), std::vector<Kind>{Kind::kAccepted});
  server = b->got[0].socket;
  a->Clear();
  b->Clear();
}

void TcpPairTest::Carry(TcpEnd& from, TcpEnd& to) {
  MemoryQueuePair& queue = from.queue();
  for (; from.carried < queue.visible(); ++from.carried) {
    const SentFrame& frame = queue.sent()[from.carried - queue.forgotten()];
    if ((frame.flags & nic::kTxWarm) != 0) continue;
    for (const std::vector<uint8_t>& bytes : frame.Cut()) {
      if (from.lose != nullptr && from.lose(bytes)) continue;
      to.nic->Deliver(bytes, now);
    }
  }
  if (from.complete_sends) queue.CompleteSends(now);
}

void TcpPairTest::Run(uint64_t for_ns, uint64_t step_ns) {
  const uint64_t end = now + for_ns;
  while (now < end) {
    now += step_ns;
    Carry(*a, *b);
    Carry(*b, *a);
    a->Poll();
    b->Poll();
  }
}

uint8_t TcpFlagsOf(const std::vector<uint8_t>& frame) { return frame[14 + 20 + 13]; }

size_t TcpPayloadOf(const std::vector<uint8_t>& frame) {
  return base::LoadBe16(&frame[14 + 2]) - 20u - 4u * (frame[14 + 20 + 12] >> 4);
}

}  // namespace xtreme::engine::testing
