// SPDX-License-Identifier: Apache-2.0
//
// The ways a frame takes to the device: whole in its WQE, from on-device memory, gathered; by
// BlueFlame or doorbell; summed by the device or by the driver. Whatever way, it arrives as it was
// sent, and a device that looks at every byte finds nothing wrong.

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stack/base/byte_order.h"
#include "stack/wire/address.h"
#include "stack/wire/checksum.h"
#include "tests/mlx5/nic_testing.h"
#include "xtreme/mlx5/queue_pair.h"
#include "xtreme/mlx5/software_checksum.h"

namespace xtreme::mlx5 {
namespace {

using connectx::SoftwareConnectX;
using connectx::UdpFrame;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kDeviceMemory = 16'384;

class SendPathsTest : public DeviceTest {
 protected:
  // Whether the device has what on-device memory needs.
  static bool has_device_memory() {
    return offered().blueflame && GetParam().options.limits.device_memory_bytes != 0;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, SendPathsTest, testing::ValuesIn(TestDevices()), DeviceName);

TEST_P(SendPathsTest, LongFrameLeavesFromDeviceMemoryWhereThereIsSome) {
  TestPort a("mlx5_0", {.device_memory_bytes = kDeviceMemory});
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  const nic::Capabilities& got = a.queues->capabilities();
  EXPECT_EQ(got.device_memory_bytes, has_device_memory() ? kDeviceMemory : 0u);
  EXPECT_THAT(got.ToString(), HasSubstr("on-device memory"));
  if (!has_device_memory()) {
    EXPECT_THAT(got.ToString(), testing::ContainsRegex(
                                    "lacking: .*on-device memory: (not used without BlueFlame|"
                                    "16384 bytes asked, not in the device)"));
  }
  const auto frame = UdpFrame(5000, std::string(1300, 'm'));
  const auto status = a.Send(frame);
  ASSERT_EQ(status, has_device_memory() ? nic::TxStatus::kPosted : nic::TxStatus::kTooLong);
  StepAll();
  if (has_device_memory()) {
    EXPECT_THAT(b.Receive(), ElementsAre(frame));
  }
  EXPECT_EQ(a.queues->counters().tx_device_memory, has_device_memory() ? 1u : 0u);
  EXPECT_EQ(a.queues->counters().tx_device_memory_full, 0u);
}

TEST_P(SendPathsTest, WhenDeviceMemoryIsFullFramesAreGatheredAndThenItIsUsedAgain) {
  if (!has_device_memory()) return;
  TestPort a("mlx5_0", {.signal_every = 4, .device_memory_bytes = 8'192});
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  const auto frame = UdpFrame(5000, std::string(1400, 'f'));
  auto memory = frame;
  const auto registered = a.nic->Register(memory.data(), memory.size());
  ASSERT_TRUE(registered.ok());
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(a.Send(memory, 0, (*registered)->key()), nic::TxStatus::kPosted);
  }
  EXPECT_EQ(a.queues->counters().tx_device_memory, 5u);
  EXPECT_EQ(a.queues->counters().tx_device_memory_full, 3u);
  EXPECT_EQ(a.queues->counters().tx_gathered, 3u);
  StepAll();
  EXPECT_EQ(b.Receive().size(), 8u);
  std::array<nic::TxCompletion, 8> done;
  EXPECT_EQ(a.queues->PollSend(done), 2u);
  ASSERT_EQ(a.Send(memory), nic::TxStatus::kPosted);
  EXPECT_EQ(a.queues->counters().tx_device_memory, 6u);
  StepAll();
  EXPECT_THAT(b.Receive(), ElementsAre(frame));
}

TEST_P(SendPathsTest, ProgramsShareDeviceMemoryAndTheLaterOneSaysWhatItGot) {
  if (!has_device_memory()) return;
  const auto all = static_cast<uint32_t>(GetParam().options.limits.device_memory_bytes);
  TestPort first("mlx5_0", {.device_memory_bytes = all / 2});
  TestPort second("mlx5_0", {.device_memory_bytes = all});
  TestPort third("mlx5_0", {.device_memory_bytes = all});
  EXPECT_EQ(first.queues->capabilities().device_memory_bytes, all / 2);
  EXPECT_EQ(second.queues->capabilities().device_memory_bytes, all / 2);
  EXPECT_THAT(second.queues->capabilities().ToString(), HasSubstr("the device gave"));
  EXPECT_EQ(third.queues->capabilities().device_memory_bytes, 0u);
  EXPECT_THAT(third.queues->capabilities().ToString(), HasSubstr("none left of"));
}

// The device compares BlueFlame's bytes with the ring's, WQE for WQE, and reads device memory when
// it gets to it, after a number of sends that nobody knows. It looks at the latest when both halves
// of the register were written: a register made of memory does not tell 8 bytes from a BlueFlame
// that they were written over.
TEST_P(SendPathsTest, FramesOfAllSizesOnAllWaysArriveInOrderFromADeviceOfAnySpeed) {
  TestPort a("mlx5_0", {.send_queue_frames = 32, .signal_every = 4,
                        .device_memory_bytes = 8'192});
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  std::mt19937 random(20261121);
  std::vector<uint8_t> memory(64 * 2048);
  const auto registered = a.nic->Register(memory.data(), memory.size());
  ASSERT_TRUE(registered.ok());
  std::vector<std::vector<uint8_t>> sent, received;
  const auto rings = [&] {
    return a.queues->counters().tx_blueflame + a.queues->counters().tx_doorbells;
  };
  uint64_t looked_at = 0;
  const auto look = [&] {
    connectx_->Step();
    looked_at = rings();
  };
  const auto receive = [&] {
    for (auto& frame : b.Receive()) received.push_back(std::move(frame));
    b.queues->Refill();
    std::array<nic::TxCompletion, 8> done;
    a.queues->PollSend(done);
  };
  for (uint32_t i = 0; i < 2'000; ++i) {
    const size_t length = random() % 3 == 0 ? random() % 1'400 : random() % 200;
    const auto frame = UdpFrame(5000, std::string(length + 18, static_cast<char>('a' + i % 26)));
    uint8_t* const place = &memory[i % 64 * 2048];
    std::copy(frame.begin(), frame.end(), place);
    const std::span lies(place, frame.size());
    const auto more = static_cast<uint16_t>(random() % 4 == 0 ? nic::kTxMore : 0);
    while (a.Send(lies, more, (*registered)->key()) != nic::TxStatus::kPosted) {
      a.queues->Flush();
      look();
      receive();
    }
    sent.push_back(frame);
    if (rings() - looked_at == 2 || random() % 3 == 0) look();
    if (random() % 5 == 0) receive();
  }
  a.queues->Flush();
  StepAll();
  receive();
  receive();
  while (received.size() < sent.size() && b.queues->ReceiveReady()) receive();
  EXPECT_EQ(received.size(), sent.size());
  EXPECT_TRUE(received == sent);
  const nic::QueueCounters& counters = a.queues->counters();
  EXPECT_EQ(counters.tx_blueflame != 0, offered().blueflame);
  EXPECT_EQ(counters.tx_device_memory != 0, has_device_memory());
  EXPECT_NE(counters.tx_doorbells, 0u);
}

TEST_P(SendPathsTest, ChecksumsAskedForAreRightWhoeverComputesThem) {
  TestPort a("mlx5_0", {.device_memory_bytes = kDeviceMemory});
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  constexpr uint16_t kBoth = nic::kTxIpChecksum | nic::kTxL4Checksum;
  std::vector<uint8_t> memory(2048);
  const auto registered = a.nic->Register(memory.data(), memory.size());
  ASSERT_TRUE(registered.ok());
  for (const size_t length : {size_t{19}, size_t{1301}}) {
    const auto frame = UdpFrame(5000, std::string(length, 's'));
    std::copy(frame.begin(), frame.end(), memory.begin());
    ASSERT_EQ(a.Send(std::span(memory).first(frame.size()), kBoth, (*registered)->key()),
              nic::TxStatus::kPosted);
    StepAll();
    const auto received = b.Receive();
    ASSERT_EQ(received.size(), 1u);
    // A sum over what holds its own checksum is 0.
    std::vector<uint8_t> expected = frame;
    FinishChecksums(kBoth, std::span(expected).first(42), std::span(expected).subspan(42));
    EXPECT_EQ(received[0], expected) << length;
    EXPECT_NE(base::LoadBe16(&received[0][24]), 0);
    EXPECT_NE(base::LoadBe16(&received[0][40]), 0);
  }
}

TEST_P(SendPathsTest, FramesOfAFlowAreSummedToo) {
  TestPort a("mlx5_0");
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  constexpr uint16_t kBoth = nic::kTxIpChecksum | nic::kTxL4Checksum;
  const auto frame = UdpFrame(5000, std::string(77, 't'));
  alignas(64) std::array<uint8_t, 64> header{};
  std::copy_n(frame.begin(), 42, header.begin());
  nic::TxTemplate flow;
  a.queues->Prepare({.bytes = header.data(), .length = 42, .flags = kBoth,
                     .lengths = {{{.at = 16, .constant = 28}, {.at = 38, .constant = 8}}}},
                    &flow);
  ASSERT_EQ(a.queues->PostCopied(flow, &frame[42], 77, 0), nic::TxStatus::kPosted);
  const nic::TxPayload payloads[] = {{&frame[42], 77}, {&frame[42], 77}};
  EXPECT_EQ(a.queues->PostBurst(flow, payloads).frames, 2u);
  a.queues->Flush();
  StepAll();
  std::vector<uint8_t> expected = frame;
  FinishChecksums(kBoth, std::span(expected).first(42), std::span(expected).subspan(42));
  EXPECT_THAT(b.Receive(), ElementsAre(expected, expected, expected));
}

TEST_P(SendPathsTest, PreparedFrameIsSentAsOftenAsItIsPostedAndAsItWasPatched) {
  TestPort a("mlx5_0");
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  constexpr uint16_t kBoth = nic::kTxIpChecksum | nic::kTxL4Checksum;
  for (const size_t length : {size_t{18}, size_t{40}, size_t{150}}) {
    auto frame = UdpFrame(5000, std::string(length, 'p'));
    alignas(64) std::array<uint8_t, 64> header{};
    std::copy_n(frame.begin(), 42, header.begin());
    nic::TxPrepared prepared;
    ASSERT_TRUE(a.queues->PrepareFrame({.header = header.data(), .payload = &frame[42],
                                        .header_length = 42,
                                        .payload_length = static_cast<uint32_t>(length),
                                        .key = 0, .flags = kBoth},
                                       &prepared));
    for (char patch : {'1', '2'}) {
      prepared.payload()[0] = frame[42] = static_cast<uint8_t>(patch);
      ASSERT_EQ(a.queues->PostPrepared(prepared, 0), nic::TxStatus::kPosted);
      StepAll();
      std::vector<uint8_t> expected = frame;
      FinishChecksums(kBoth, std::span(expected).first(42), std::span(expected).subspan(42));
      EXPECT_THAT(b.Receive(), ElementsAre(expected));
    }
  }
}

// --- TCP segments --------------------------------------------------------------------------------

// What the receiver of a segment looks at.
struct Segment {
  uint32_t sequence;
  uint16_t id;
  uint8_t flags;
  std::string payload;
  bool sums_right;
  bool operator==(const Segment&) const = default;
};

Segment ParseSegment(const std::vector<uint8_t>& frame) {
  const std::span ip(frame.data() + 14, base::LoadBe16(&frame[16]));
  wire::ChecksumSum sum;
  sum.AddPseudoHeader(wire::Ipv4Address(base::LoadBe32(&ip[12])),
                      wire::Ipv4Address(base::LoadBe32(&ip[16])), 6,
                      static_cast<uint16_t>(ip.size() - 20));
  sum.Add(ip.subspan(20));
  const size_t tcp_bytes = size_t{ip[32]} / 16 * 4;
  return {.sequence = base::LoadBe32(&ip[24]),
          .id = base::LoadBe16(&ip[4]),
          .flags = ip[33],
          .payload = std::string(ip.begin() + static_cast<ptrdiff_t>(20 + tcp_bytes), ip.end()),
          .sums_right = wire::Checksum(ip.first(20)) == 0 && sum.Checksum() == 0};
}

// Ethernet, IPv4 and TCP from A to B's port, with 12 bytes of options: 66 bytes.
std::vector<uint8_t> TcpHeader(uint16_t port, uint32_t sequence, uint8_t flags) {
  std::vector<uint8_t> header = UdpFrame(port, std::string(24, '\0'));
  header.resize(66);
  header[23] = 6;
  base::StoreBe16(&header[18], 100);  // IPv4 identification.
  base::StoreBe32(&header[38], sequence);
  base::StoreBe32(&header[42], 77);
  header[46] = 8 << 4;
  header[47] = flags;
  base::StoreBe16(&header[48], 1000);
  base::StoreBe32(&header[50], 0);
  for (size_t at = 54; at < 66; ++at) header[at] = 1;  // No operation.
  return header;
}

TEST_P(SendPathsTest, PiecesOfPayloadLeaveAsSegmentsOfTheirSize) {
  TestPort a("mlx5_0");
  TestPort b("mlx5_1");
  nic::FlowRule tcp = UdpRule(5000);
  tcp.match.protocol = 6;
  const auto rule = b.nic->AddRule(tcp, b.queues.get());
  ASSERT_TRUE(rule.ok());
  b.queues->Refill();
  std::string payload(2'500, '.');
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>('a' + i % 23);
  std::vector<uint8_t> memory(payload.begin(), payload.end());
  const auto registered = a.nic->Register(memory.data(), memory.size());
  ASSERT_TRUE(registered.ok());
  constexpr uint8_t kAck = 0x10, kPush = 0x08, kFin = 0x01;
  const auto header = TcpHeader(5000, 0xffffff00, kAck | kPush | kFin);
  const nic::TxGather pieces[] = {{memory.data(), 700, (*registered)->key()},
                                  {&memory[700], 1'799, (*registered)->key()},
                                  {&memory[2'499], 1, (*registered)->key()}};
  const nic::TxSegments segments{.header = header.data(), .header_length = 66,
                                 .segment_bytes = 1'000, .payload = pieces, .flags = 0};
  const uint32_t most = a.queues->capabilities().max_segmented_bytes;
  const bool cuts =
      GetParam().options.limits.tso_bytes != 0 && GetParam().options.features.checksum_offload;
  EXPECT_EQ(most != 0, cuts);
  ASSERT_EQ(a.queues->PostSegments(segments),
            cuts ? nic::TxStatus::kPosted : nic::TxStatus::kTooLong);
  if (!cuts) return;
  EXPECT_EQ(a.queues->posted_frames(), 1u);
  StepAll();
  std::vector<Segment> received;
  for (const auto& frame : b.Receive()) received.push_back(ParseSegment(frame));
  const std::vector<Segment> expected = {
      {0xffffff00, 100, kAck, payload.substr(0, 1'000), true},
      {0xffffff00 + 1'000, 101, kAck, payload.substr(1'000, 1'000), true},
      {0xffffff00 + 2'000, 102, kAck | kPush | kFin, payload.substr(2'000), true}};
  EXPECT_TRUE(received == expected) << received.size();
  EXPECT_EQ(a.queues->counters().tx_segmented, 1u);
  EXPECT_EQ(a.queues->counters().tx_bytes, 66u + 2'500u) << "its header once";
}

TEST_P(SendPathsTest, SegmentsThatCannotBeAreRefusedAndLeaveNothing) {
  TestPort a("mlx5_0");
  std::vector<uint8_t> memory(4'096);
  const auto registered = a.nic->Register(memory.data(), memory.size());
  ASSERT_TRUE(registered.ok());
  const auto header = TcpHeader(5000, 1, 0x10);
  const nic::TxGather piece{memory.data(), 4'096, (*registered)->key()};
  const std::vector<nic::TxGather> many(nic::kMaxTxGathers + 1, piece);
  const std::vector<nic::TxGather> large(64, piece);
  const auto post = [&](std::span<const nic::TxGather> payload, uint32_t segment_bytes) {
    return a.queues->PostSegments({.header = header.data(), .header_length = 66,
                                   .segment_bytes = segment_bytes, .payload = payload,
                                   .flags = 0});
  };
  EXPECT_EQ(post({&piece, 1}, 1'460), nic::TxStatus::kTooLong) << "a segment above the MTU";
  EXPECT_EQ(post(many, 1'000), nic::TxStatus::kTooLong);
  EXPECT_EQ(post({}, 1'000), nic::TxStatus::kTooLong) << "no payload";
  EXPECT_EQ(a.queues->posted_frames(), 0u);
}

// --- Rates ---------------------------------------------------------------------------------------

TEST_P(SendPathsTest, PacedQueueSendsAtItsRateAndAnotherOneAsItLikes) {
  TestPort paced("mlx5_0");
  TestPort free("mlx5_0");
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  constexpr uint64_t kRate = 1'000'000;  // A byte a microsecond.
  const absl::Status set = paced.nic->SetRate(
      paced.queues.get(),
      {.bytes_per_second = kRate, .burst_bytes = 1'500, .typical_packet_bytes = 1'000});
  EXPECT_EQ(paced.queues->capabilities().rate_limit, GetParam().options.features.packet_pacing);
  if (!GetParam().options.features.packet_pacing) {
    EXPECT_EQ(set.code(), absl::StatusCode::kUnimplemented);
    return;
  }
  if (!GetParam().options.features.pacing_bursts) {
    EXPECT_EQ(set.code(), absl::StatusCode::kInvalidArgument);
    return;
  }
  ASSERT_TRUE(set.ok()) << set;
  const auto frame = UdpFrame(5000, std::string(958, 'r'));  // 1,000 bytes.
  std::vector<uint8_t> memory = frame;
  const auto mine = paced.nic->Register(memory.data(), memory.size());
  const auto other = free.nic->Register(memory.data(), memory.size());
  ASSERT_TRUE(mine.ok() && other.ok());
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(paced.Send(memory, 0, (*mine)->key()), nic::TxStatus::kPosted);
    ASSERT_EQ(free.Send(memory, 0, (*other)->key()), nic::TxStatus::kPosted);
  }
  StepAll();
  const size_t at_once = b.Receive().size();
  EXPECT_GE(at_once, 20u + 1u);
  EXPECT_LE(at_once, 20u + 2u) << "the burst, and all of the other";
  size_t received = at_once - 20;
  connectx_->Step(/*advance_ns=*/5'000'000);
  StepAll();
  received += b.Receive().size();
  EXPECT_NEAR(static_cast<double>(received), 5 + 1.5, 1.5) << "5 ms";
  for (int i = 0; i < 20; ++i) {
    connectx_->Step(/*advance_ns=*/1'000'000);
    received += b.Receive().size();
  }
  EXPECT_EQ(received, 20u);
  for (const uint64_t too_fast : {~uint64_t{0} / 16, uint64_t{1} << 61}) {
    EXPECT_EQ(paced.nic->SetRate(paced.queues.get(), {.bytes_per_second = too_fast}).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(SendPathsTest, BurstIsWhatLeavesAtOnce) {
  const auto& features = GetParam().options.features;
  if (!features.packet_pacing || !features.pacing_bursts) return;
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  const auto at_once = [&](uint32_t burst_bytes) {
    TestPort a("mlx5_0");
    const nic::RateLimit rate{.bytes_per_second = 1'000'000, .burst_bytes = burst_bytes};
    EXPECT_TRUE(a.nic->SetRate(a.queues.get(), rate).ok());
    std::vector<uint8_t> memory = UdpFrame(5000, std::string(958, 'r'));
    const auto key = a.nic->Register(memory.data(), memory.size());
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(a.Send(memory, 0, (*key)->key()), nic::TxStatus::kPosted);
    }
    StepAll();
    const size_t first = b.Receive().size();
    connectx_->Step(/*advance_ns=*/100'000'000);
    StepAll();
    b.Receive();
    return first;
  };
  const size_t small = at_once(2'000);
  EXPECT_EQ(at_once(9'000), small + 7);
}

// Rates of the device are in kilobits: a byte a second is one, and not none.
TEST_P(SendPathsTest, TheSlowestRateIsNoFreedom) {
  if (!GetParam().options.features.packet_pacing) return;
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  TestPort a("mlx5_0");
  const uint32_t burst_bytes = GetParam().options.features.pacing_bursts ? 2'000 : 0;
  ASSERT_TRUE(a.nic
                  ->SetRate(a.queues.get(),
                            {.bytes_per_second = 1, .burst_bytes = burst_bytes})
                  .ok());
  std::vector<uint8_t> memory = UdpFrame(5000, std::string(958, 'r'));
  const auto key = a.nic->Register(memory.data(), memory.size());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(a.Send(memory, 0, (*key)->key()), nic::TxStatus::kPosted);
  }
  StepAll();
  EXPECT_LT(b.Receive().size(), 5u);
}

TEST(Rates, BelowTheDevicesLeastAreRefusedInWords) {
  connectx::Device::Options device;
  device.limits.least_rate_kbps = 80;
  connectx::ConnectXRig connectx(SoftwareConnectX::Mode::kStep, {}, device);
  {
    TestPort a("mlx5_0");
    const auto set = [&a](uint64_t bytes_per_second) {
      return a.nic->SetRate(a.queues.get(), {.bytes_per_second = bytes_per_second});
    };
    const absl::Status refused = set(9'875);  // 79 kbit/s.
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(refused.message(),
              "limit sends to 9875 bytes a second: mlx5_0 offers 10000 to 12500000000");
    EXPECT_TRUE(set(9'876).ok()) << "rounded up";
    EXPECT_TRUE(set(10'000).ok());
    EXPECT_TRUE(set(0).ok()) << "no limit";
  }
  connectx.ExpectClean();
}

// Bring-up and sends of many rings at once: each has a register of its own, or two of them would
// tear each other's WQEs, which the device would see.
TEST(ManyRings, ThirtyTwoInThirtyTwoThreadsEachHaveTheirOwnRegister) {
  connectx::ConnectXRig connectx(SoftwareConnectX::Mode::kAdaptive);
  {
    constexpr uint32_t kRings = 32;
    constexpr uint32_t kFrames = 200;
    const auto nic = OpenPort(PortOptions("mlx5_0"));
    std::vector<packet::BufferPool::Handle> pools(kRings);
    std::vector<std::unique_ptr<nic::QueuePair>> queues(kRings);
    std::set<const uint8_t*> registers;
    for (uint32_t i = 0; i < kRings; ++i) {
      pools[i] = MakePool(64);
      auto made = nic->CreateQueuePair({.send_queue_frames = 64, .receive_queue_frames = 8,
                                        .signal_every = 8}, pools[i].get());
      ASSERT_TRUE(made.ok()) << made.status();
      queues[i] = *std::move(made);
      mlx5dv_qp direct{};
      mlx5dv_obj object{
          .qp = {static_cast<QueuePair*>(queues[i].get())->verbs_qp(), &direct}};
      ASSERT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
      registers.insert(static_cast<const uint8_t*>(direct.bf.reg));
    }
    EXPECT_EQ(registers.size(), kRings);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kRings; ++i) {
      threads.emplace_back([&queue = *queues[i], i] {
        const auto frame = UdpFrame(5000, std::string(30 + i, 'r'));
        std::array<uint8_t, 64> header{};
        std::copy_n(frame.begin(), 42, header.begin());
        std::array<nic::TxCompletion, 8> done;
        for (uint32_t sent = 0; sent < kFrames;) {
          const auto status = queue.Post(
              {.header = header.data(), .payload = &frame[42], .header_length = 42,
               .payload_length = static_cast<uint32_t>(frame.size() - 42), .key = 0,
               .flags = 0});
          sent += status == nic::TxStatus::kPosted;
          if (status != nic::TxStatus::kPosted) std::this_thread::yield();
          queue.PollSend(done);
        }
        while (!queue.SendIdle()) {
          queue.PollSend(done);
          std::this_thread::yield();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& queue : queues) {
      EXPECT_EQ(queue->counters().tx_blueflame, kFrames);
      EXPECT_FALSE(queue->error().has_value());
    }
  }
  connectx.ExpectClean();
}

TEST(ManyRings, OneMoreThanThereAreRegistersIsRefusedInWords) {
  connectx::Device::Options small;
  small.limits.uars = 3;
  connectx::ConnectXRig connectx(SoftwareConnectX::Mode::kStep, {}, small);
  {
    const auto nic = OpenPort(PortOptions("mlx5_0"));
    const auto pool = MakePool();
    std::vector<std::unique_ptr<nic::QueuePair>> queues;
    absl::Status refused;
    while (queues.size() < 16) {
      auto made = nic->CreateQueuePair({}, pool.get());
      refused = made.status();
      if (!made.ok()) break;
      queues.push_back(*std::move(made));
    }
    EXPECT_FALSE(queues.empty());
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("doorbell register (UAR)"));
    queues.pop_back();
    EXPECT_TRUE(nic->CreateQueuePair({}, pool.get()).ok()) << "one was given back";
  }
  connectx.ExpectClean();
}

}  // namespace
}  // namespace xtreme::mlx5
