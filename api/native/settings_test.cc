// SPDX-License-Identifier: Apache-2.0

#include "api/native/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace xtreme::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

xtreme_ring_options Profile(std::string_view name) {
  xtreme_ring_options options = {};
  EXPECT_EQ(FillProfile(name, &options), "");
  return options;
}

// `variables` outlive the options: a name taken from the environment is not copied.
std::string FromEnvironment(std::vector<std::string>& variables, xtreme_ring_options* options) {
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  return SetFromEnvironment(environment.data(), options);
}

TEST(SettingsTest, EveryProfileIsWithinTheRanges) {
  for (std::string_view profile : kProfiles) EXPECT_EQ(Check(Profile(profile)), "") << profile;
}

TEST(SettingsTest, UnknownProfileIsNamed) {
  xtreme_ring_options options = {};
  EXPECT_EQ(FillProfile("fast", &options),
            "profile: 'fast' asked, latency, feed, throughput, dev possible");
}

TEST(SettingsTest, EveryNumberMayBeSetByNameAndIsPrinted) {
  xtreme_ring_options options = Profile("dev");
  EXPECT_EQ(Set("rx_burst_us", "2500", &options), "");
  EXPECT_EQ(Set("wait", "hybrid", &options), "");
  EXPECT_EQ(Set("link_bits_per_second", "25000000000", &options), "");
  EXPECT_EQ(options.rx_burst_us, 2500u);
  EXPECT_EQ(options.wait, XTREME_WAIT_HYBRID);
  EXPECT_EQ(options.link_bits_per_second, 25'000'000'000u);
  EXPECT_THAT(Print(options), HasSubstr("rx_burst_us = 2500\n"));
  EXPECT_THAT(Print(options), HasSubstr("wait = hybrid\n"));
}

TEST(SettingsTest, WrongNameFormOrRangeIsNamedAndChangesNothing) {
  xtreme_ring_options options = Profile("dev");
  const xtreme_ring_options before = options;
  EXPECT_THAT(Set("rx_bursts", "1", &options), HasSubstr("'rx_bursts': there is none"));
  EXPECT_EQ(Set("rx_queue_frames", "1000", &options),
            "setting 'rx_queue_frames': '1000' asked, a power of two, 64 to 32768 possible");
  EXPECT_EQ(Set("poll_batch", "16x", &options),
            "setting 'poll_batch': '16x' asked, 1 to 256 possible");
  EXPECT_EQ(Set("poll_batch", "-1", &options),
            "setting 'poll_batch': '-1' asked, 1 to 256 possible");
  EXPECT_EQ(Set("poll_batch", "", &options), "setting 'poll_batch': '' asked, 1 to 256 possible");
  EXPECT_EQ(Set("wait", "spin", &options),
            "setting 'wait': 'spin' asked, busy, sleep, hybrid possible");
  EXPECT_EQ(memcmp(&before, &options, sizeof options), 0);
}

// What is too little is told where it is set, not when the ring is opened.
TEST(SettingsTest, WhereNoneIsPossibleAFewNeedNotBe) {
  xtreme_ring_options options = Profile("dev");
  EXPECT_EQ(Set("rx_buffers", "0", &options), "");
  EXPECT_EQ(Set("rx_buffers", "64", &options), "");
  EXPECT_EQ(Set("rx_buffers", "63", &options),
            "setting 'rx_buffers': '63' asked, 0, or 64 to 16777216 possible");
  EXPECT_EQ(Set("device_memory", "0", &options), "");
  EXPECT_EQ(Set("device_memory", "2048", &options),
            "setting 'device_memory': '2048' asked, 0, or a power of two, 4096 to 1048576 "
            "possible");
  EXPECT_EQ(Set("dump_snap_bytes", "0", &options), "");
  EXPECT_NE(Set("dump_snap_bytes", "95", &options), "");
  options.rx_buffers = 1;
  EXPECT_THAT(Check(options), HasSubstr("'rx_buffers': 1 asked"));
}

TEST(SettingsTest, CpusThatNoListNamesAreToldWhereTheyAreSet) {
  xtreme_ring_options options = Profile("dev");
  for (const char* possible : {"", "3", "0-3,8"}) {
    EXPECT_EQ(Set("control_cpus", possible, &options), "");
    EXPECT_STREQ(options.control_cpus, possible);
  }
  EXPECT_EQ(Set("control_cpus", "3-", &options),
            "setting 'control_cpus': '3-' asked, a list of CPUs possible");
  EXPECT_STREQ(options.control_cpus, "0-3,8");
}

TEST(SettingsTest, WhereCountersArePublishedThoughNobodySaidWhereIsPrinted) {
  xtreme_ring_options options = Profile("dev");
  EXPECT_THAT(Print(options), HasSubstr("counters_directory = /dev/shm\n"));
  EXPECT_EQ(Set("counters_directory", "", &options), "");
  EXPECT_THAT(Print(options), HasSubstr("counters_directory = \n"));
}

TEST(SettingsTest, EnvironmentAppliesTheProfileFirst) {
  xtreme_ring_options options = Profile("dev");
  std::vector<std::string> variables = {"PATH=/bin", "XTREME_POLL_BATCH=7", "XTREME_PROFILE=feed",
                                        "XTREME_INTERFACE=eth2"};
  EXPECT_EQ(FromEnvironment(variables, &options), "");
  EXPECT_EQ(options.poll_batch, 7u);
  EXPECT_EQ(options.rx_burst_us, 10'000u);
  EXPECT_STREQ(options.interface_name, "eth2");
}

// As clearenv(3) leaves it.
TEST(SettingsTest, NoEnvironmentIsAnEmptyOne) {
  xtreme_ring_options options = Profile("dev");
  const xtreme_ring_options before = options;
  EXPECT_EQ(SetFromEnvironment(nullptr, &options), "");
  EXPECT_EQ(memcmp(&before, &options, sizeof options), 0);
}

TEST(SettingsTest, AProfileOfTheEnvironmentLeavesTheProgramsMemory) {
  xtreme_ring_options options = Profile("dev");
  options.memory_allocate = [](void*, size_t) -> void* { return nullptr; };
  options.memory_release = [](void*, void*) {};
  options.memory_context = &options;
  const xtreme_ring_options before = options;
  std::vector<std::string> variables = {"XTREME_PROFILE=feed"};
  EXPECT_EQ(FromEnvironment(variables, &options), "");
  EXPECT_EQ(options.rx_burst_us, 10'000u);
  EXPECT_EQ(options.memory_allocate, before.memory_allocate);
  EXPECT_EQ(options.memory_release, before.memory_release);
  EXPECT_EQ(options.memory_context, before.memory_context);
}

TEST(SettingsTest, WhatIsNoneOfTheChoicesIsPrintedAsItIs) {
  xtreme_ring_options options = Profile("dev");
  options.wait = 200;
  EXPECT_THAT(Print(options), HasSubstr("wait = 200\n"));
}

TEST(SettingsTest, UnknownOrMalformedVariableIsNamed) {
  xtreme_ring_options options = Profile("dev");
  std::vector<std::string> unknown = {"XTREME_POL_BATCH=7"};
  EXPECT_THAT(FromEnvironment(unknown, &options), HasSubstr("XTREME_POL_BATCH: "));
  std::vector<std::string> malformed = {"XTREME_POLL_BATCH=many"};
  EXPECT_THAT(FromEnvironment(malformed, &options),
              HasSubstr("XTREME_POLL_BATCH: setting 'poll_batch': 'many' asked"));
  std::vector<std::string> profile = {"XTREME_PROFILE=x"};
  EXPECT_THAT(FromEnvironment(profile, &options), HasSubstr("XTREME_PROFILE: "));
}

TEST(SettingsTest, VariablesOfTheToolsAreNotOurs) {
  xtreme_ring_options options = Profile("dev");
  std::vector<std::string> variables = {"XTREME_CONNECTX_MODE=spin"};
  EXPECT_EQ(FromEnvironment(variables, &options), "");
}

TEST(SettingsTest, CheckFindsWhatAProgramFilledWrong) {
  xtreme_ring_options options = Profile("latency");
  options.tx_queue_frames = 100;
  EXPECT_THAT(Check(options), HasSubstr("'tx_queue_frames': 100 asked"));
}

TEST(SettingsTest, ReferenceHasARowForEachSetting) {
  const std::string reference = Reference();
  for (const Setting& setting : Settings()) {
    EXPECT_THAT(reference, HasSubstr("| `" + std::string(setting.name) + "` |"));
  }
  EXPECT_THAT(reference, Not(HasSubstr("||")));
}

TEST(SettingsTest, TheDocumentHasTheSameTable) {
  std::ifstream file("docs/settings.md");
  const std::string document((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(document, HasSubstr(Reference())) << "replace the table in docs/settings.md";
}

}  // namespace
}  // namespace xtreme::api
