// SPDX-License-Identifier: Apache-2.0
#include "stack/ip/fragmentation.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "stack/wire/frame_template.h"
#include "stack/wire/golden.h"
#include "stack/wire/ipv4.h"

namespace xtreme::ip {
namespace {

TEST(FragmentPlan, ADatagramThatFitsIsNotCut) {
  const auto plan = FragmentPlan::Create(1472, 1500);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->count(), 1u);
  EXPECT_EQ(plan->At(0),
            (Fragment{.ip_payload_bytes = 1480, .payload_bytes = 1472, .first = true}));
}

TEST(FragmentPlan, OneByteMoreIsCutInTwo) {
  const auto plan = FragmentPlan::Create(1473, 1500);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->count(), 2u);
  EXPECT_EQ(
      plan->At(0),
      (Fragment{.ip_payload_bytes = 1480, .payload_bytes = 1472, .first = true, .more = true}));
  EXPECT_EQ(plan->At(1), (Fragment{.ip_offset_bytes = 1480,
                                   .ip_payload_bytes = 1,
                                   .payload_offset_bytes = 1472,
                                   .payload_bytes = 1}));
}

TEST(FragmentPlan, APacketOfOddRoomIsFilledOnlyWhenItIsTheLast) {
  // 1,501 bytes of MTU leave 1,481: a whole datagram may use them, a first fragment may not.
  EXPECT_EQ(FragmentPlan::Create(1473, 1501)->count(), 1u);
  const auto plan = FragmentPlan::Create(1474, 1501);
  EXPECT_EQ(plan->count(), 2u);
  EXPECT_EQ(plan->At(0).ip_payload_bytes, 1480u);
}

TEST(FragmentPlan, WhatCannotBeSentIsRefused) {
  EXPECT_TRUE(FragmentPlan::Create(65507, 1500));
  EXPECT_FALSE(FragmentPlan::Create(65508, 1500));
  EXPECT_TRUE(FragmentPlan::Create(1, 68));
  EXPECT_FALSE(FragmentPlan::Create(1, 67));
}

TEST(FragmentPlan, EveryByteIsSentOnceInPacketsThatFit) {
  for (size_t mtu : {68u, 69u, 576u, 1499u, 1500u, 9000u}) {
    for (size_t payload : {0u, 1u, 39u, 40u, 41u, 1472u, 1473u, 9000u, 65507u}) {
      SCOPED_TRACE(testing::Message() << "mtu " << mtu << " payload " << payload);
      const auto plan = FragmentPlan::Create(payload, mtu);
      ASSERT_TRUE(plan);
      size_t ip_bytes = 0;
      size_t payload_bytes = 0;
      for (size_t i = 0; i < plan->count(); ++i) {
        const Fragment fragment = plan->At(i);
        EXPECT_EQ(fragment.ip_offset_bytes, ip_bytes);
        EXPECT_EQ(fragment.payload_offset_bytes, payload_bytes);
        EXPECT_EQ(fragment.more, i + 1 < plan->count());
        EXPECT_EQ(fragment.first, i == 0);
        EXPECT_GT(fragment.ip_payload_bytes, 0u);
        EXPECT_LE(wire::kIpv4MinHeaderBytes + fragment.ip_payload_bytes, mtu);
        EXPECT_TRUE(!fragment.more || fragment.ip_payload_bytes % 8 == 0);
        ip_bytes += fragment.ip_payload_bytes;
        payload_bytes += fragment.payload_bytes;
      }
      EXPECT_EQ(ip_bytes, payload + 8);
      EXPECT_EQ(payload_bytes, payload);
    }
  }
}

TEST(FragmentPlan, TheTemplateWritesWhatThePlanSays) {
  const wire::FrameTemplate frame({.destination = {wire::Ipv4Address(192, 0, 2, 2), 9},
                                   .source = {wire::Ipv4Address(192, 0, 2, 1), 9},
                                   .dont_fragment = false});
  const auto plan = FragmentPlan::Create(4000, 1500);
  for (size_t i = 0; i < plan->count(); ++i) {
    const Fragment fragment = plan->At(i);
    wire::Bytes bytes(frame.data(), frame.data() + frame.header_bytes());
    bytes.resize(14 + 20 + fragment.ip_payload_bytes);
    frame.PatchFragment(bytes.data(), 77, fragment.ip_offset_bytes, fragment.ip_payload_bytes,
                        fragment.more);
    const auto ip =
        wire::Ipv4View::Parse(std::span(bytes).subspan(14), wire::ChecksumCheck::kVerify);
    ASSERT_TRUE(ip.ok());
    EXPECT_EQ(ip->fragment_offset_bytes(), fragment.ip_offset_bytes);
    EXPECT_EQ(ip->payload().size(), fragment.ip_payload_bytes);
    EXPECT_EQ(ip->more_fragments(), fragment.more);
  }
}

}  // namespace
}  // namespace xtreme::ip
