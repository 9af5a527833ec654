// SPDX-License-Identifier: Apache-2.0
//
// The driver through the real libibverbs and libmlx5 on the software ConnectX: frames both ways,
// and a device that found nothing to object to.

#include "xtreme/mlx5/nic.h"

#include <net/if.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/mlx5/nic_testing.h"

namespace xtreme::mlx5 {
namespace {

extern "C" {
__attribute__((weak)) void __lsan_disable();
__attribute__((weak)) void __lsan_enable();
}

using connectx::SoftwareConnectX;
using connectx::UdpFrame;
using testing::ElementsAre;
using testing::HasSubstr;

class NicTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, NicTest, testing::ValuesIn(TestDevices()), DeviceName);

TEST_P(NicTest, FindsTheDeviceByNameAndListsThemWhenItIsNotThere) {
  const auto missing = Nic::Open(PortOptions("mlx5_9"));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("mlx5_0"));
  const auto none = FindDevice("no-such-interface", 4711);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
}

TEST(FindDevice, KnowsAnInterfaceBySysfsAndByTheGidTable) {
  auto ends = *connectx::MakeLink();
  const auto device = SoftwareConnectX::Create(
      {.mode = SoftwareConnectX::Mode::kStep,
       .ports = {{.device = {.name = "mlx5_0", .mac = connectx::kMacA}, .wire = ends[0].get()},
                 {.device = {.name = "mlx5_1", .mac = connectx::kMacB}, .interface = "lo",
                  .wire = ends[1].get()}}});
  ASSERT_TRUE(device.ok()) << device.status();
  const int index = static_cast<int>(if_nametoindex("lo"));
  for (const char* name : {"lo", "renamed"}) {
    const auto found = FindDevice(name, index);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->device, "mlx5_1") << name;
    EXPECT_EQ(found->port, 1);
  }
  EXPECT_EQ(FindDevice("lo", index + 4711).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*device)->live_objects(), connectx::LiveObjects{});

  // In switchdev mode the functions' representors stand beside the port that is the uplink.
  const std::string name_file =
      (*device)->sysfs_path() + "/class/infiniband/mlx5_1/device/net/lo/phys_port_name";
  std::ofstream(name_file) << "p1\n";
  EXPECT_TRUE(FindDevice("lo", index).ok());
  std::ofstream(name_file) << "pf0vf3\n";
  const auto representor = FindDevice("lo", index);
  EXPECT_EQ(representor.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(representor.status().message()), HasSubstr("representor (pf0vf3)"));
}

// 9,216 is what many networks have, 9,978 what mlx5's interfaces have at most.
TEST_P(NicTest, EveryMtuOfACardsInterfaceIsTaken) {
  for (const uint32_t mtu : {576u, 9'216u, 9'978u}) {
    const auto nic = Nic::Open(PortOptions("mlx5_0", mtu));
    ASSERT_TRUE(nic.ok()) << nic.status();
    const auto pool = MakePool(/*buffers=*/64, /*buffer_bytes=*/10'240);
    const auto queues = (*nic)->CreateQueuePair({.receive_queue_frames = 8}, pool.get());
    ASSERT_TRUE(queues.ok()) << queues.status();
    EXPECT_EQ((*queues)->capabilities().mtu, mtu);
  }
  for (const uint32_t mtu : {575u, 9'979u}) {
    EXPECT_EQ(Nic::Open(PortOptions("mlx5_0", mtu)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(NicTest, ReceiveTimesConvertToTheClockOfTheSamples) {
  const auto nic = OpenPort(PortOptions("mlx5_0"));
  // The host's clock is the device's virtual one: no reading is interrupted.
  const auto now = [&] { return connectx_->clock().Now(); };
  connectx_->device(0).AdjustPhc(37'000'000'000, 0);
  connectx_->Step();
  nic->SampleClock(now);
  connectx_->Step(/*advance_ns=*/1'000'000'000);
  const nic::DeviceClock sampled = nic->SampleClock(now);
  ASSERT_EQ(sampled.ptp.has_value(), offered().clock_info);
  for (const auto& conversion : {sampled.host, sampled.ptp.value_or(sampled.host)}) {
    EXPECT_TRUE(conversion.in_sync);
    EXPECT_LT(conversion.error_bound_ns, 250u);
  }
  connectx_->Step(/*advance_ns=*/10'000'000);
  const int64_t then = connectx_->clock().Now();
  const uint64_t raw = connectx_->device(0).CyclesAt(then);
  const auto bound = [](const nic::ClockConversion& conversion) {
    return static_cast<double>(conversion.error_bound_ns);
  };
  EXPECT_NEAR(sampled.host.ToNanoseconds(raw), then, bound(sampled.host));
  if (!sampled.ptp.has_value()) return;
  EXPECT_NEAR(sampled.ptp->ToNanoseconds(raw), connectx_->device(0).PhcAt(then),
              bound(*sampled.ptp));
}

TEST_P(NicTest, InterruptsAreModeratedWhereTheDeviceCan) {
  TestPort a("mlx5_0");
  const absl::Status moderated =
      a.nic->SetModeration(a.queues.get(), {.completions = 8, .microseconds = 10});
  if (offered().cq_moderation) {
    EXPECT_EQ(moderated, absl::OkStatus());
  } else {
    EXPECT_EQ(moderated.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(moderated.message()), HasSubstr("mlx5_0 cannot"));
  }
}

TEST_P(NicTest, FramesAreSharedWithTheKernelWhereTheDeviceCan) {
  TestPort b("mlx5_1");
  nic::FlowRule rule = UdpRule(5000);
  rule.share_with_kernel = true;
  const auto shared = b.nic->AddRule(rule, b.queues.get());
  if (offered().dont_trap) {
    EXPECT_TRUE(shared.ok()) << shared.status();
  } else {
    EXPECT_EQ(shared.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(shared.status().message()),
                HasSubstr("does not share frames with the kernel"));
  }
}

TEST_P(NicTest, ADeviceThatIsPulledSaysSoAndRefusesWhatFollows) {
  // libmlx5 keeps what the kernel did not destroy for it.
  if (__lsan_disable != nullptr) __lsan_disable();
  TestPort a("mlx5_0");
  if (__lsan_enable != nullptr) __lsan_enable();
  connectx_->device(0).Remove();
  StepAll();
  EXPECT_EQ(a.nic->PollEvent(), nic::PortEvent::kDeviceRemoved);
  EXPECT_EQ(a.nic->PollEvent(), std::nullopt);
  EXPECT_FALSE(a.nic->CreateQueuePair({}, a.pool.get()).ok());
  EXPECT_FALSE(a.nic->AddRule(UdpRule(5000), a.queues.get()).ok());
}

TEST_P(NicTest, EventsOfOtherPortsOfTheDeviceAreNotOurs) {
  TestPort a("mlx5_0");
  connectx_->device(0).TellOfOtherPort(2, /*up=*/false);
  connectx_->device(0).TellOfOtherPort(2, /*up=*/true);
  EXPECT_EQ(a.nic->PollEvent(), std::nullopt);
  connectx_->device(0).TellOfOtherPort(2, /*up=*/true);
  connectx_->device(0).SetPortUp(false);
  StepAll();
  EXPECT_EQ(a.nic->PollEvent(), nic::PortEvent::kLinkDown);
  EXPECT_EQ(a.nic->PollEvent(), std::nullopt);
}

TEST_P(NicTest, RegistrationRefusesNothingAndSaysTheLimit) {
  const auto nic = OpenPort(PortOptions("mlx5_0"));
  std::vector<uint8_t> memory(4096);
  EXPECT_EQ(nic->Register(memory.data(), 0).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(connectx_->FailNext("REG_MR", ENOMEM));
  const auto refused = nic->Register(memory.data(), memory.size());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              testing::AllOf(HasSubstr("4096 bytes asked"), HasSubstr("RLIMIT_MEMLOCK is")));
  EXPECT_TRUE(nic->Register(memory.data(), memory.size()).ok());
}

TEST_P(NicTest, SaysWhatTheQueuePairGot) {
  TestPort a("mlx5_0");
  const nic::Capabilities& got = a.queues->capabilities();
  const bool lacks = !offered().blueflame || !timed() || !offered().checksum_offload;
  EXPECT_EQ(got.blueflame, offered().blueflame);
  EXPECT_EQ(got.blueflame_bytes, offered().blueflame ? 256u : 0u);
  EXPECT_EQ(got.max_inline_bytes, 226u);
  EXPECT_EQ(got.send_queue_frames, 1024u);
  EXPECT_EQ(got.receive_queue_frames, 1024u);
  EXPECT_EQ(got.lacking.empty(), !lacks) << got.ToString();
  EXPECT_THAT(got.ToString(), HasSubstr("mlx5_0 port 1: MTU 1500"));
}

TEST_P(NicTest, InlineFrameArrivesThroughBlueFlameWhereThereIsOne) {
  TestPort a("mlx5_0");
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000, /*tag=*/77);
  const auto frame = UdpFrame(5000, "a short datagram, whole in its WQE");
  ASSERT_EQ(a.Send(frame), nic::TxStatus::kPosted);
  StepAll();
  ASSERT_TRUE(b.queues->ReceiveReady());
  nic::RxFrame received;
  ASSERT_EQ(b.queues->PollReceive({&received, 1}), 1u);
  EXPECT_TRUE(std::ranges::equal(received.buffer->bytes(), frame));
  EXPECT_EQ(received.tag, 77u);
  EXPECT_EQ((received.flags & nic::kRxTimestamp) != 0, timed());
  EXPECT_EQ(received.hw_clock != 0, offered().timestamps);
  EXPECT_FALSE(b.queues->ReceiveReady());
  EXPECT_EQ(a.queues->counters().tx_blueflame, offered().blueflame ? 1u : 0u);
  EXPECT_EQ(a.queues->counters().tx_doorbells, offered().blueflame ? 0u : 1u);
  packet::BufferPool::Release(received.buffer);
}

TEST_P(NicTest, LongFrameIsGatheredFromItsRegistration) {
  TestPort a("mlx5_0");
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  auto frame = UdpFrame(5000, std::string(1400, 'x'));
  EXPECT_EQ(a.Send(frame), nic::TxStatus::kTooLong) << "without a key";
  const auto registration = a.nic->Register(frame.data(), frame.size());
  ASSERT_TRUE(registration.ok()) << registration.status();
  ASSERT_EQ(a.Send(frame, 0, (*registration)->key()), nic::TxStatus::kPosted);
  StepAll();
  EXPECT_THAT(b.Receive(), ElementsAre(frame));
  EXPECT_EQ(a.queues->counters().tx_gathered, 1u);
}

TEST_P(NicTest, DeviceComputesTheChecksumsThatAreAskedFor) {
  TestPort a("mlx5_0");
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  const auto frame = UdpFrame(5000, "checksums");
  auto unfinished = frame;
  unfinished[24] = unfinished[25] = 0;  // IPv4 header checksum.
  unfinished[40] = unfinished[41] = 0;  // UDP checksum.
  // A device without them says so, and must not be asked.
  if (!offered().checksum_offload) return;
  ASSERT_EQ(a.Send(unfinished, nic::kTxIpChecksum | nic::kTxL4Checksum), nic::TxStatus::kPosted);
  StepAll();
  nic::RxFrame received;
  ASSERT_EQ(b.queues->PollReceive({&received, 1}), 1u);
  EXPECT_EQ(received.flags & 3, nic::kRxIpChecksumOk | nic::kRxL4ChecksumOk);
  EXPECT_NE(received.buffer->bytes()[24], 0);
  packet::BufferPool::Release(received.buffer);
}

TEST_P(NicTest, ManyFramesLeaveOnOneDoorbellAndNoneBeforeIt) {
  TestPort a("mlx5_0");
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  const auto frame = UdpFrame(5000, "one of sixteen");
  for (int i = 0; i < 16; ++i) ASSERT_EQ(a.Send(frame, nic::kTxMore), nic::TxStatus::kPosted);
  StepAll();
  EXPECT_FALSE(b.queues->ReceiveReady());
  a.queues->Flush();
  a.queues->Flush();
  StepAll();
  EXPECT_EQ(b.Receive().size(), 16u);
  EXPECT_EQ(a.queues->counters().tx_doorbells, 1u);
}

TEST_P(NicTest, RingsWrapManyTimesWithFramesOfAllSizes) {
  TestPort a("mlx5_0", {.send_queue_frames = 16, .signal_every = 4});
  TestPort b("mlx5_1", {.receive_queue_frames = 16});
  const auto rule = Listen(b, 5000);
  std::array<nic::TxCompletion, 16> completions;
  for (int i = 0; i < 600; ++i) {
    auto frame = UdpFrame(5000, std::string(18 + i % 167, static_cast<char>('a' + i % 26)));
    ASSERT_EQ(a.Send(frame, i % 3 == 0 ? nic::kTxSignal : 0), nic::TxStatus::kPosted) << i;
    StepAll();
    ASSERT_THAT(b.Receive(), ElementsAre(frame)) << i;
    b.queues->Refill();
    a.queues->PollSend(completions);
  }
  EXPECT_EQ(a.queues->posted_frames(), 600u);
  EXPECT_EQ(b.queues->counters().rx_frames, 600u);
}

TEST_P(NicTest, FullQueueRefusesUntilCompletionsAreTaken) {
  TestPort a("mlx5_0", {.send_queue_frames = 16, .signal_every = 4});
  const auto frame = UdpFrame(5000, "full");
  for (int i = 0; i < 16; ++i) ASSERT_EQ(a.Send(frame), nic::TxStatus::kPosted);
  EXPECT_EQ(a.Send(frame), nic::TxStatus::kFull);
  StepAll();
  EXPECT_EQ(a.Send(frame), nic::TxStatus::kFull) << "nothing was taken yet";
  std::array<nic::TxCompletion, 8> completions;
  ASSERT_EQ(a.queues->PollSend(completions), 4u);
  EXPECT_EQ(completions[0].frames, 4u);
  EXPECT_EQ(completions[3].frames, 16u);
  EXPECT_EQ(completions[3].hw_clock != 0, timed());
  EXPECT_TRUE(a.queues->SendIdle());
  EXPECT_EQ(a.Send(frame), nic::TxStatus::kPosted);
  EXPECT_EQ(a.queues->counters().tx_full, 2u);
}

TEST_P(NicTest, WarmSendCompletesAndReachesNoWire) {
  TestPort a("mlx5_0");
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  const auto frame = UdpFrame(5000, "not for the wire");
  ASSERT_EQ(a.Send(frame, nic::kTxWarm | nic::kTxSignal), nic::TxStatus::kPosted);
  EXPECT_FALSE(a.queues->SendIdle());
  StepAll();
  nic::TxCompletion completion;
  ASSERT_EQ(a.queues->PollSend({&completion, 1}), 1u);
  EXPECT_EQ(completion.frames, 1u);
  EXPECT_FALSE(b.queues->ReceiveReady());
  EXPECT_EQ(a.queues->counters().tx_warm, 1u);
}

TEST_P(NicTest, WithoutBlueFlameEverySendRings) {
  TestPort a("mlx5_0", {.blueflame = false});
  TestPort b("mlx5_1");
  const auto rule = Listen(b, 5000);
  const auto frame = UdpFrame(5000, "doorbell");
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(a.Send(frame), nic::TxStatus::kPosted);
    StepAll();
  }
  EXPECT_EQ(b.Receive().size(), 3u);
  EXPECT_EQ(a.queues->counters().tx_doorbells, 3u);
  EXPECT_EQ(a.queues->counters().tx_blueflame, 0u);
}

TEST_P(NicTest, EmptyReceiveQueueShowsInLowWaterCountersAndThePortsCounter) {
  TestPort a("mlx5_0");
  TestPort b("mlx5_1", {.receive_queue_frames = 8});
  const auto rule = Listen(b, 5000);
  EXPECT_EQ(b.queues->TakeLowWater(), 8u);
  const auto frame = UdpFrame(5000, "more than there is room for");
  for (int i = 0; i < 11; ++i) ASSERT_EQ(a.Send(frame), nic::TxStatus::kPosted);
  StepAll();
  EXPECT_EQ(b.Receive().size(), 8u);
  EXPECT_EQ(b.queues->TakeLowWater(), 0u);
  EXPECT_EQ(b.queues->counters().rx_empty, 1u);
  const auto counters = b.nic->ReadPortCounters();
  ASSERT_TRUE(counters.ok()) << counters.status();
  EXPECT_EQ(counters->out_of_buffer, 3u);
}

// A port lets through what another function of the card asked it to, whatever the interface's MTU.
TEST(FrameLongerThanTheBuffers, IsLostAndTheQueueGoesOn) {
  connectx::ConnectXRig rig(SoftwareConnectX::Mode::kStep, {}, {.mtu = 9'000});
  const auto longer = UdpFrame(5000, std::string(1'900, 'x'));
  const auto frame = UdpFrame(5000, "as long as the MTU allows");
  {
    connectx::Endpoint a("mlx5_0");
    const auto pool = MakePool(/*buffers=*/64, /*buffer_bytes=*/1'728);
    const auto b = OpenPort(PortOptions("mlx5_1"));
    const auto made = b->CreateQueuePair({.receive_queue_frames = 8}, pool.get());
    ASSERT_TRUE(made.ok()) << made.status();
    nic::QueuePair& queues = **made;
    const auto rule = b->AddRule(UdpRule(5000), &queues);
    ASSERT_TRUE(rule.ok()) << rule.status();
    for (int lap = 0; lap < 4; ++lap) {
      queues.Refill();
      for (const auto& sent : {longer, frame, longer, frame}) {
        ASSERT_EQ(a.Send(0, sent, 0), 0);
        while (rig->Step()) {
        }
        connectx::Endpoint::Poll(a.send_cq());
      }
      uint32_t received = 0;
      std::array<nic::RxFrame, 8> frames;
      for (int polls = 0; polls < 4; ++polls) {
        const uint32_t count = queues.PollReceive(frames);
        for (uint32_t i = 0; i < count; ++i) packet::BufferPool::Release(frames[i].buffer);
        received += count;
      }
      EXPECT_EQ(received, 2u) << lap;
    }
    EXPECT_FALSE(queues.error().has_value()) << queues.error()->text;
    EXPECT_EQ(queues.counters().rx_too_long, 8u);
    EXPECT_EQ(b->PollEvent(), std::nullopt);
  }
  for (int i = 0; i < 8; ++i) rig.ExpectViolation("receive_length");
  rig.ExpectClean();
}

TEST_P(NicTest, ErrorCompletionBreaksTheSendQueueInWordsAndCountsItsFramesOff) {
  TestPort a("mlx5_0");
  const auto good = UdpFrame(5000, "good");
  const auto bad = UdpFrame(5000, std::string(600, 'x'));
  ASSERT_EQ(a.Send(good, nic::kTxMore), nic::TxStatus::kPosted);
  ASSERT_EQ(a.Send(bad, nic::kTxMore, /*key=*/0xdead00), nic::TxStatus::kPosted);
  ASSERT_EQ(a.Send(good), nic::TxStatus::kPosted);
  StepAll();
  std::array<nic::TxCompletion, 8> completions;
  const uint32_t count = a.queues->PollSend(completions);
  ASSERT_EQ(count, 2u);
  EXPECT_EQ(completions[0].frames, 2u);
  EXPECT_EQ(completions[1].frames, 3u);
  EXPECT_TRUE(a.queues->SendIdle());
  ASSERT_TRUE(a.queues->error().has_value());
  EXPECT_FALSE(a.queues->error()->receive);
  EXPECT_EQ(a.queues->error()->syndrome, 0x04);
  EXPECT_THAT(a.queues->error()->text, HasSubstr("memory that its key does not cover"));
  EXPECT_EQ(a.Send(good), nic::TxStatus::kBroken);
  EXPECT_EQ(a.nic->PollEvent(), std::nullopt) << "a card has told it by the completion";
  connectx_.ExpectViolation("memory_key");
}

// A card's queues are objects of their own: what ends one says nothing of the other.
TEST_P(NicTest, FramesAreReceivedBehindAnErrorOfTheSendQueue) {
  TestPort a("mlx5_0");
  TestPort b("mlx5_1");
  const auto rule = Listen(a, 5000);
  const auto bad = UdpFrame(5000, std::string(600, 'x'));
  ASSERT_EQ(a.Send(bad, 0, /*key=*/0xdead00), nic::TxStatus::kPosted);
  StepAll();
  std::array<nic::TxCompletion, 8> completions;
  EXPECT_EQ(a.queues->PollSend(completions), 1u);
  ASSERT_TRUE(a.queues->error().has_value());
  ASSERT_EQ(b.Send(UdpFrame(5000, "still heard")), nic::TxStatus::kPosted);
  StepAll();
  EXPECT_EQ(a.Receive().size(), 1u);
  EXPECT_FALSE(a.queues->error()->receive);
  connectx_.ExpectViolation("memory_key");
}

TEST_P(NicTest, AnOverrunThatNoCompletionCanTellIsAnEventOfAQueue) {
  TestPort a("mlx5_0");
  auto other = a.nic->CreateQueuePair({}, a.pool.get());
  ASSERT_TRUE(other.ok()) << other.status();
  const nic::QueueAddresses at = *a.queues->Addresses();
  *at.send_record = __builtin_bswap32(at.send_block_count + 1);
  *reinterpret_cast<volatile uint64_t*>(at.send_register) = 1;
  StepAll();
  EXPECT_EQ(a.nic->PollEvent(), nic::PortEvent::kQueueError);
  EXPECT_EQ(a.nic->PollEvent(), std::nullopt);
  EXPECT_FALSE(a.queues->error().has_value()) << "nobody looked yet";
  for (nic::QueuePair* queues : {a.queues.get(), other->get()}) queues->LookForStop();
  ASSERT_TRUE(a.queues->error().has_value());
  EXPECT_THAT(a.queues->error()->text, HasSubstr("no completion says why"));
  EXPECT_EQ(a.Send(UdpFrame(5000, "refused")), nic::TxStatus::kBroken);
  EXPECT_FALSE((*other)->error().has_value()) << "it was not the one";
  other->reset();
  connectx_.ExpectViolation("doorbell_bytes");
  connectx_.ExpectViolation("send_overrun");
}

}  // namespace
}  // namespace xtreme::mlx5
