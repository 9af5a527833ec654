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
