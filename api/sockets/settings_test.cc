// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/settings.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "api/native/settings.h"
#include "gtest/gtest.h"

namespace xtreme::sockets {
namespace {

std::string Read(std::vector<const char*> environment, FaceSettings* settings,
                 std::vector<std::string>* remarks) {
  environment.push_back(nullptr);
  return ReadSettings(const_cast<char**>(environment.data()), settings, remarks);
}

TEST(FaceSettingsTest, VmasVariablesAreAliasesAndOursPrevail) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"XTREME_RX_POLL=5", "VMA_RX_POLL=-1", "VMA_SELECT_POLL=0", "HOME=/",
                  "VMA_TRACELEVEL=DEBUG", "VMA_THREAD_MODE=0", "XTREME_SPIN_US=7"},
                 &settings, &remarks),
            "");
  EXPECT_EQ(settings.rx_poll, 5);
  EXPECT_EQ(settings.select_poll_us, 0);
  EXPECT_EQ(settings.log_level, 5);
  EXPECT_TRUE(settings.single_thread);
  EXPECT_EQ(settings.ring.spin_us, 7u);
  EXPECT_TRUE(remarks.empty());
}

// As clearenv(3) leaves it.
TEST(FaceSettingsTest, NoEnvironmentIsAnEmptyOne) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(ReadSettings(nullptr, &settings, &remarks), "");
  EXPECT_EQ(settings.rx_poll, FaceSettings().rx_poll);
  EXPECT_EQ(settings.ring.wait, XTREME_WAIT_BUSY) << "the profile's";
}

TEST(FaceSettingsTest, LevelsHaveAllOfVmasNames) {
  const struct {
    const char* name;
    int64_t level;
  } kLevels[] = {{"NONE", -1},    {"PANIC", 0},   {"ERROR", 1}, {"WARN", 2},  {"WARNING", 2},
                 {"INFO", 3},     {"INFORMATION", 3},           {"DETAILS", 4}, {"DEBUG", 5},
                 {"FINE", 6},     {"FUNC", 6},    {"FINER", 7}, {"FUNC_ALL", 7}, {"ALL", 8},
                 {"func_all", 7}, {"func+", 7},   {"funcall", 7},            {"func-all", 7},
                 {"-1", -1},      {"0", 0},       {"3", 3},   {"4", 5},   {"5", 6},
                 {"6", 7},        {"8", 8}};
  for (const auto& each : kLevels) {
    FaceSettings settings;
    std::vector<std::string> remarks;
    const std::string variable = std::string("VMA_TRACELEVEL=") + each.name;
    EXPECT_EQ(Read({variable.c_str()}, &settings, &remarks), "");
    EXPECT_EQ(settings.log_level, each.level) << each.name;
  }
}

TEST(FaceSettingsTest, ForcingTheKernelsTurnIsAskingItAlways) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"VMA_SELECT_POLL_OS_FORCE=0"}, &settings, &remarks), "");
  EXPECT_EQ(settings.select_poll_os_ratio, 10);
  settings.select_skip_os = 4;
  EXPECT_EQ(Read({"VMA_SELECT_POLL_OS_FORCE=1"}, &settings, &remarks), "");
  EXPECT_EQ(settings.select_poll_os_ratio, 1);
  EXPECT_EQ(settings.select_skip_os, 0);
  EXPECT_TRUE(remarks.empty());
  EXPECT_EQ(Read({"VMA_SELECT_POLL_OS_FORCE=2"}, &settings, &remarks),
            "VMA_SELECT_POLL_OS_FORCE: '2' asked, 0 to 1 possible");
}

TEST(FaceSettingsTest, VmasVariableWithoutAMeaningIsARemark) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"VMA_GRO_STREAMS_MAX=0"}, &settings, &remarks), "");
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_EQ(remarks[0], "VMA_GRO_STREAMS_MAX has no meaning here and no effect");
}

TEST(FaceSettingsTest, WhatConnectionsBeginWith) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"VMA_TCP_QUICKACK=1", "VMA_MSS=1400", "VMA_TCP_CC_ALGO=0",
                  "VMA_TCP_TIMESTAMP_OPTION=2", "VMA_TCP_MAX_SYN_RATE=50",
                  "VMA_TX_MC_LOOPBACK=0"},
                 &settings, &remarks),
            "");
  EXPECT_TRUE(settings.quick_ack);
  EXPECT_EQ(settings.mss, 1'400);
  EXPECT_EQ(settings.congestion, 0);
  EXPECT_EQ(settings.tcp_timestamps, 2);
  EXPECT_EQ(settings.max_syn_rate, 50);
  EXPECT_FALSE(settings.multicast_loop);
  EXPECT_TRUE(remarks.empty());
}

TEST(FaceSettingsTest, UnknownOrMalformedIsAnErrorThatNamesIt) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"VMA_RX_POLL=many"}, &settings, &remarks),
            "VMA_RX_POLL: 'many' asked, -1 to 1000000000 possible");
  EXPECT_NE(Read({"XTREME_COLOUR=red"}, &settings, &remarks).find("XTREME_COLOUR"),
            std::string::npos);
}

TEST(FaceSettingsTest, AnErrorNamesAllThatIsPossible) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"XTREME_RING_ALLOCATION_LOGIC_RX=5"}, &settings, &remarks),
            "XTREME_RING_ALLOCATION_LOGIC_RX: '5' asked, 0, 1, 10, 11, 20, 30, 31 possible");
  EXPECT_EQ(Read({"VMA_TRACELEVEL=loud"}, &settings, &remarks),
            "VMA_TRACELEVEL: 'loud' asked, none, panic, error, warning, info, details, debug, "
            "fine, finer, all, -1 to 8 possible");
  EXPECT_EQ(Read({"VMA_BF=2"}, &settings, &remarks),
            "VMA_BF: setting 'blueflame': '2' asked, off, on possible, or VMA's 0 to 1");
  EXPECT_EQ(Read({"VMA_INTERNAL_THREAD_AFFINITY=0xg"}, &settings, &remarks),
            "VMA_INTERNAL_THREAD_AFFINITY: setting 'control_cpus': 'g' asked, a list of CPUs "
            "possible, or VMA's -1, 0xMASK");
}

TEST(FaceSettingsTest, UnknownVariableOfVmasIsTold) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"VMA_COLOUR=red"}, &settings, &remarks), "");
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_EQ(remarks[0], "VMA_COLOUR is not known, and has no effect");
}

TEST(FaceSettingsTest, MalformedVariableOfVmasIsAnErrorThatNamesIt) {
  for (const char* wrong : {"VMA_THREAD_MODE=4", "VMA_THREAD_MODE=", "VMA_TRACELEVEL=loud",
                            "VMA_SPEC=fast", "VMA_RING_ALLOCATION_LOGIC_RX=2", "VMA_RX_WRE=many",
                            "VMA_RX_BUFS=-1", "VMA_MEM_ALLOC_TYPE=3", "VMA_BF=yes",
                            "VMA_HW_TS_CONVERSION=5",
                            "VMA_SOCKETXTREME=2", "VMA_MSS=40000", "VMA_TCP_CC_ALGO=3",
                            "VMA_TCP_TIMESTAMP_OPTION=3", "VMA_TCP_MAX_SYN_RATE=100001",
                            "VMA_CQ_POLL_BATCH_MAX=0"}) {
    FaceSettings settings;
    std::vector<std::string> remarks;
    const std::string name(wrong, std::string_view(wrong).find('='));
    const std::string error = Read({wrong}, &settings, &remarks);
    EXPECT_EQ(error.substr(0, name.size()), name) << error;
  }
}

TEST(FaceSettingsTest, SpecificationBeginsAndEveryVariablePrevailsOverIt) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"VMA_RX_POLL=7", "VMA_SPEC=latency"}, &settings, &remarks), "");
  EXPECT_EQ(settings.select_skip_os, 4);
  EXPECT_EQ(settings.rx_poll, 7);
  EXPECT_EQ(settings.select_poll_us, -1);
  EXPECT_EQ(settings.ring_logic(), RingLogic::kPerInterface);
  settings = FaceSettings();
  EXPECT_EQ(Read({"VMA_SPEC=latency", "XTREME_SPEC=dev"}, &settings, &remarks), "");
  EXPECT_EQ(settings.rx_poll, 0) << "ours prevails";
  EXPECT_EQ(settings.ring.rx_queue_frames, 512u);
  settings = FaceSettings();
  EXPECT_EQ(Read({"XTREME_SPEC=Multi_Ring_Latency"}, &settings, &remarks), "");
  EXPECT_EQ(settings.ring_logic(), RingLogic::kPerThread);
  settings = FaceSettings();
  EXPECT_EQ(Read({"XTREME_SPEC=throughput", "XTREME_POLL_BATCH=3"}, &settings, &remarks), "");
  EXPECT_EQ(settings.ring.rx_frame_bytes, 1500u);
  EXPECT_EQ(settings.ring.poll_batch, 3u);
}

TEST(FaceSettingsTest, SpecificationsHaveAllOfVmasNamesAndMeanings) {
  const struct {
    const char* spec;
    int64_t rx_poll;
    int64_t select_poll_us;
    RingLogic logic;
    bool nodelay;
  } kSpecs[] = {{"none", 10'000, 1'000, RingLogic::kPerInterface, false},
                {"0", 10'000, 1'000, RingLogic::kPerInterface, false},
                {"ultra-latency", -1, -1, RingLogic::kPerInterface, true},
                {"10", -1, -1, RingLogic::kPerInterface, true},
                {"latency", -1, -1, RingLogic::kPerInterface, true},
                {"15", -1, -1, RingLogic::kPerInterface, true},
                {"29west", 0, 100'000, RingLogic::kPerInterface, false},
                {"29", 0, 100'000, RingLogic::kPerInterface, false},
                {"wombat_fh", 0, 0, RingLogic::kPerInterface, false},
                {"554", 0, 0, RingLogic::kPerInterface, false},
                {"mcd", 10'000, 1'000, RingLogic::kPerBoundCore, false},
                {"623", 10'000, 1'000, RingLogic::kPerBoundCore, false},
                {"MCD-IRQ", 0, 0, RingLogic::kPerBoundCore, false},
                {"624", 0, 0, RingLogic::kPerBoundCore, false},
                {"rti", -1, 1'000, RingLogic::kPerInterface, false},
                {"784", -1, 1'000, RingLogic::kPerInterface, false},
                {"7750", -1, -1, RingLogic::kPerInterface, false},
                {"multi_ring_latency", -1, -1, RingLogic::kPerThread, false}};
  for (const auto& each : kSpecs) {
    FaceSettings settings;
    std::vector<std::string> remarks;
    const std::string variable = std::string("VMA_SPEC=") + each.spec;
    EXPECT_EQ(Read({variable.c_str()}, &settings, &remarks), "");
    EXPECT_EQ(settings.rx_poll, each.rx_poll) << each.spec;
    EXPECT_EQ(settings.select_poll_us, each.select_poll_us) << each.spec;
    EXPECT_EQ(settings.ring_logic(), each.logic) << each.spec;
    EXPECT_EQ(settings.nodelay, each.nodelay) << each.spec;
  }
}

TEST(FaceSettingsTest, VmasVariablesOfRingsAreSettingsOfRings) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"VMA_RX_BUFS=3000", "VMA_RX_WRE=1500", "VMA_TX_WRE=256", "VMA_TX_WRE_BATCHING=4",
                  "VMA_CQ_POLL_BATCH_MAX=8", "VMA_RING_DEV_MEM_TX=16384", "VMA_BF=0",
                  "VMA_MEM_ALLOC_TYPE=0", "VMA_INTERNAL_THREAD_AFFINITY=0x13",
                  "VMA_STATS_SHMEM_DIR=/tmp", "XTREME_PROFILE=feed"},
                 &settings, &remarks),
            "");
  EXPECT_TRUE(remarks.empty());
  EXPECT_EQ(settings.ring.rx_buffers, 3'000u);
  EXPECT_EQ(settings.ring.rx_queue_frames, 2'048u);
  EXPECT_EQ(settings.ring.tx_queue_frames, 256u);
  EXPECT_EQ(settings.ring.signal_every, 4u);
  EXPECT_EQ(settings.ring.poll_batch, 8u);
  EXPECT_EQ(settings.ring.device_memory, 16'384u);
  EXPECT_EQ(settings.ring.blueflame, 0u);
  EXPECT_EQ(settings.ring.hugepages, 0u);
  EXPECT_STREQ(settings.ring.control_cpus, "0,1,4");
  EXPECT_STREQ(settings.ring.counters_directory, "/tmp");
  EXPECT_EQ(settings.ring.rx_burst_us, 10'000u) << "of the profile";
}

TEST(FaceSettingsTest, ThereIsRoomForManyClientsUnlessItIsSaidHowMany) {
  for (const char* profile : {"XTREME_SPEC=latency", "XTREME_SPEC=feed", "XTREME_PROFILE=dev"}) {
    FaceSettings settings;
    std::vector<std::string> remarks;
    EXPECT_EQ(Read({profile}, &settings, &remarks), "");
    EXPECT_EQ(settings.ring.max_connections, 4'096u) << profile;
    EXPECT_EQ(Read({profile, "XTREME_MAX_CONNECTIONS=5"}, &settings, &remarks), "");
    EXPECT_EQ(settings.ring.max_connections, 5u) << profile;
  }
}

TEST(FaceSettingsTest, LengthsOfQueuesThatVmaIsAskedForAreWishes) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"VMA_RX_WRE=50000", "VMA_TX_WRE=16"}, &settings, &remarks), "");
  EXPECT_EQ(settings.ring.rx_queue_frames, 32'768u);
  EXPECT_EQ(settings.ring.tx_queue_frames, 64u);
  EXPECT_EQ(Read({"VMA_SPEC=throughput", "VMA_TX_WRE=64"}, &settings, &remarks), "");
  EXPECT_EQ(settings.ring.signal_every, 16u) << "as often as such a queue wants it";
  settings = FaceSettings();
  EXPECT_NE(Read({"XTREME_RX_QUEUE_FRAMES=65536"}, &settings, &remarks), "");
}

// VMA has no such bounds.
TEST(FaceSettingsTest, MemoryOfTheDeviceThatVmaIsAskedForIsAWishAndItsIntervalAnyLength) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"VMA_RING_DEV_MEM_TX=1000", "VMA_PROGRESS_ENGINE_INTERVAL=60000"}, &settings,
                 &remarks), "");
  EXPECT_EQ(settings.ring.device_memory, 4'096u);
  EXPECT_EQ(settings.progress_ms, 60'000);
  EXPECT_EQ(Read({"VMA_RING_DEV_MEM_TX=3000000"}, &settings, &remarks), "");
  EXPECT_EQ(settings.ring.device_memory, 1u << 20);
  EXPECT_EQ(Read({"VMA_RING_DEV_MEM_TX=0"}, &settings, &remarks), "");
  EXPECT_EQ(settings.ring.device_memory, 0u);
}

TEST(FaceSettingsTest, BuffersAreMoreThanWaitToReceive) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"VMA_RX_BUFS=100"}, &settings, &remarks),
            "XTREME_RX_BUFFERS (VMA_RX_BUFS): '100' asked, 1056 and more possible: the receive "
            "queue takes 1024");
  EXPECT_EQ(Read({"VMA_RX_BUFS=100", "VMA_RX_WRE=64"}, &settings, &remarks), "");
  EXPECT_EQ(settings.ring.signal_every, 18u) << "half of what does not wait to receive";
  EXPECT_EQ(Read({"VMA_RX_BUFS=68", "VMA_RX_WRE=64", "VMA_TX_WRE_BATCHING=4"}, &settings, &remarks),
            "XTREME_RX_BUFFERS (VMA_RX_BUFS): '68' asked, 72 and more possible: the receive queue "
            "takes 64")
      << "signals are no rarer for it";
  for (const char* const buffers : {"VMA_RX_BUFS=2000", "VMA_RX_BUFS=0"}) {  // 0: as many as fit.
    EXPECT_EQ(Read({buffers}, &settings, &remarks), "");
    EXPECT_EQ(settings.ring.signal_every, 128u);
  }
}

TEST(FaceSettingsTest, TimesAreOnThePtpClockIfVmaWereToConvertThemToIt) {
  for (int mode = 0; mode <= 4; ++mode) {
    FaceSettings settings;
    std::vector<std::string> remarks;
    const std::string variable = "VMA_HW_TS_CONVERSION=" + std::to_string(mode);
    EXPECT_EQ(Read({variable.c_str()}, &settings, &remarks), "");
    EXPECT_TRUE(remarks.empty());
    EXPECT_EQ(settings.ring.hw_time,
              mode == 4 ? XTREME_HW_TIME_PTP : XTREME_HW_TIME_MONOTONIC) << mode;
  }
}

TEST(FaceSettingsTest, RingsAreDividedByWhatIsSaidOfReceivingElseOfSending) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"VMA_RING_ALLOCATION_LOGIC_TX=10"}, &settings, &remarks), "");
  EXPECT_EQ(settings.ring_logic(), RingLogic::kPerSocket);
  EXPECT_EQ(Read({"VMA_RING_ALLOCATION_LOGIC_TX=10", "VMA_RING_ALLOCATION_LOGIC_RX=20"}, &settings,
                 &remarks),
            "");
  EXPECT_EQ(settings.ring_logic(), RingLogic::kPerThread);
}

TEST(FaceSettingsTest, BannerHasEverySettingWithItsVariable) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"XTREME_RX_POLL=-1"}, &settings, &remarks), "");
  const std::vector<std::string> lines = DescribeSettings(settings);
  EXPECT_EQ(lines[0], "rx_poll                      -1                         [XTREME_RX_POLL]");
}

// A program may have rings of its own beside those of its sockets.
TEST(FaceSettingsTest, VariablesOfThisLibraryAloneArePassedOverByTheProgramsRings) {
  size_t variables = 0;
  for (const std::string& line : DescribeSettings(FaceSettings())) {
    const size_t at = line.rfind('[') + 1;
    std::string variable = line.substr(at, line.size() - 1 - at) + "=1";
    char* environment[] = {variable.data(), nullptr};
    xtreme_ring_options options = {};
    ASSERT_EQ(api::FillProfile("dev", &options), "");
    EXPECT_EQ(api::SetFromEnvironment(environment, &options), "");
    ++variables;
  }
  EXPECT_GT(variables, 20u);
}

TEST(FaceSettingsTest, ReferenceStandsInTheDocumentation) {
  std::ifstream file("docs/settings.md");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find(FaceReference()), std::string::npos) << FaceReference();
}

}  // namespace
}  // namespace xtreme::sockets
