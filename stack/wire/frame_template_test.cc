// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/frame_template.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "stack/wire/frame.h"
#include "stack/wire/golden.h"

namespace xtreme::wire {
namespace {

const FrameTemplate::Fields kFields{
    .destination_mac = MacAddress({0x01, 0x00, 0x5E, 0x36, 0x0C, 0x6F}),
    .source_mac = MacAddress({0x02, 0, 0, 0, 0, 0x0E}),
    .destination = {Ipv4Address(233, 54, 12, 111), 26477},
    .source = {Ipv4Address(192, 0, 2, 1), 4242},
    .ttl = 16,
    .tos = 0xB8,
};

Bytes HeadersOf(const FrameTemplate& frame) {
  return Bytes(frame.data(), frame.data() + frame.header_bytes());
}

FrameTemplate::Fields Tagged() {
  FrameTemplate::Fields fields = kFields;
  fields.vlan = VlanTag{.id = 100, .priority = 3};
  return fields;
}

TEST(FrameTemplate, HoldsTheHeadersOfAnEmptyDatagram) {
  const FrameTemplate frame(kFields);
  EXPECT_EQ(HeadersOf(frame), Hex("01005e360c6f 02000000000e 0800"
                                  "45b8001c 00004000 1011 0000 c0000201 e9360c6f"
                                  "1092 676d 0008 0000"));
  EXPECT_EQ(frame.ip_offset(), 14u);
  EXPECT_EQ(frame.udp_offset(), 34u);
}

TEST(FrameTemplate, ATagMovesEverythingByFour) {
  const FrameTemplate frame(Tagged());
  EXPECT_EQ(HeadersOf(frame), Hex("01005e360c6f 02000000000e 8100 6064 0800"
                                  "45b8001c 00004000 1011 0000 c0000201 e9360c6f"
                                  "1092 676d 0008 0000"));
  EXPECT_EQ(frame.ip_offset(), 18u);
  EXPECT_EQ(frame.udp_offset(), 38u);
}

TEST(FrameTemplate, IsOneAlignedCacheLineAndZeroBehindTheHeaders) {
  // On the heap: gcc's address sanitizer aligns stack frames to 32 bytes only.
  const auto frame = std::make_unique<FrameTemplate>(kFields);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(frame->data()) % 64, 0u);
  for (size_t i = frame->header_bytes(); i < FrameTemplate::kStorageBytes; ++i) {
    EXPECT_EQ(frame->data()[i], 0) << i;
  }
}

TEST(FrameTemplate, PatchesTouchTheirFieldsInTheCopyAndNothingElse) {
  const FrameTemplate frame(Tagged());
  const Bytes before = HeadersOf(frame);
  Bytes headers = before + Poisoned(4);
  frame.PatchLengths(headers.data(), 1000);
  EXPECT_EQ(headers, With(With(before, 20, Hex("0404")), 42, Hex("03f0")) + Poisoned(4));
  headers = before + Poisoned(4);
  frame.PatchId(headers.data(), 0xBEEF);
  EXPECT_EQ(headers, With(before, 22, Hex("beef")) + Poisoned(4));
  EXPECT_EQ(HeadersOf(frame), before);
}

TEST(FrameTemplate, TheNextHopMayChange) {
  FrameTemplate frame(kFields);
  frame.SetDestinationMac(MacAddress({2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(HeadersOf(frame), With(HeadersOf(FrameTemplate(kFields)), 0, Hex("020202020202")));
}

TEST(FrameTemplate, WithSoftwareChecksumsTheFrameIsAccepted) {
  for (const FrameTemplate::Fields& fields : {kFields, Tagged()}) {
    for (size_t payload_bytes : {0u, 1u, 3u, 64u, 1472u}) {
      SCOPED_TRACE(payload_bytes);
      const FrameTemplate frame(fields);
      const Bytes payload(payload_bytes, 0x5A);
      Bytes bytes = HeadersOf(frame);
      frame.PatchLengths(bytes.data(), payload_bytes);
      frame.FillChecksums(bytes.data(), payload);
      bytes = bytes + payload;
      UdpFrame udp;
      ASSERT_EQ(ParseUdpFrame(bytes.data(), bytes.size(), kNoChecksumVerified, &udp),
                FrameVerdict::kUdp);
      EXPECT_EQ(udp.payload_bytes, payload_bytes);
      EXPECT_EQ(udp.payload_offset, frame.header_bytes());
      EXPECT_EQ(udp.flow.destination, fields.destination.address);
      EXPECT_EQ(udp.flow.source_port, fields.source.port);
    }
  }
}

TEST(FrameTemplate, FragmentsHaveTheirPlaceAndARightHeaderChecksum) {
  const FrameTemplate frame(kFields);
  Bytes headers = HeadersOf(frame) + Bytes(1480 - 8);
  frame.PatchFragment(headers.data(), 0xBEEF, 2960, 1480, true);
  const auto ip = Ipv4View::Parse(std::span(headers).subspan(14), ChecksumCheck::kVerify);
  ASSERT_TRUE(ip.ok());
  EXPECT_EQ(ip->id(), 0xBEEF);
  EXPECT_EQ(ip->fragment_offset_bytes(), 2960u);
  EXPECT_TRUE(ip->more_fragments());
  EXPECT_FALSE(ip->dont_fragment());
  EXPECT_EQ(ip->total_bytes(), 1500);
}

}  // namespace
}  // namespace xtreme::wire
