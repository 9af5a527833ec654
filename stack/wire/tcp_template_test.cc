// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/tcp_template.h"

#include <gtest/gtest.h>

#include "stack/wire/golden.h"
#include "stack/wire/tcp_frame.h"

namespace xtreme::wire {
namespace {

TcpTemplate::Fields Fields(bool timestamps, bool tagged) {
  TcpTemplate::Fields fields{
      .destination_mac = MacAddress({0x02, 0, 0, 0, 0, 0x0E}),
      .source_mac = MacAddress({0x02, 0, 0, 0, 0, 0x0F}),
      .destination = {Ipv4Address(192, 0, 2, 2), 26477},
      .source = {Ipv4Address(192, 0, 2, 1), 4242},
      .ttl = 16,
      .tos = 0xB8,
      .timestamps = timestamps,
  };
  if (tagged) fields.vlan = VlanTag{.id = 100, .priority = 3};
  return fields;
}

// The headers in a buffer that has room for every option.
Bytes HeadersOf(const TcpTemplate& headers) {
  Bytes bytes(headers.data(), headers.data() + headers.header_bytes());
  bytes.resize(TcpTemplate::kMaxHeadersBytes, kPoison);
  return bytes;
}

TEST(TcpTemplate, HoldsTheHeadersOfAnEmptySegment) {
  const TcpTemplate plain(Fields(false, false));
  EXPECT_EQ(Bytes(plain.data(), plain.data() + plain.header_bytes()),
            Hex("02000000000e 02000000000f 0800"
                "45b80028 00004000 1006 0000 c0000201 c0000202"
                "1092 676d 00000000 00000000 5010 0000 0000 0000"));
  EXPECT_EQ(plain.ip_offset(), 14u);
  EXPECT_EQ(plain.tcp_offset(), 34u);
  EXPECT_FALSE(plain.timestamps());
}

TEST(TcpTemplate, HasATagAndTimestampsWhenAsked) {
  const TcpTemplate full(Fields(true, true));
  EXPECT_EQ(Bytes(full.data(), full.data() + full.header_bytes()),
            Hex("02000000000e 02000000000f 8100 6064 0800"
                "45b80034 00004000 1006 0000 c0000201 c0000202"
                "1092 676d 00000000 00000000 8010 0000 0000 0000 0101080a 00000000 00000000"));
  EXPECT_EQ(full.header_bytes(), 70u);
  EXPECT_TRUE(full.timestamps());
}

TEST(TcpTemplate, IsEightyBytes) { EXPECT_EQ(sizeof(TcpTemplate), 80u); }

TEST(TcpTemplate, PatchesTouchTheirFieldsInTheCopyAndNothingElse) {
  const TcpTemplate full(Fields(true, true));
  const Bytes before = HeadersOf(full);
  Bytes headers = before;
  full.PatchSegment(headers.data(), {.sequence = 0x01020304,
                                     .acknowledgement = 0x05060708,
                                     .window = 0x1122,
                                     .flags = kTcpAck | kTcpPsh});
  EXPECT_EQ(headers, With(before, 42, Hex("01020304 05060708 8018 1122")));
  headers = before;
  full.PatchTimestamps(headers.data(), {0x0A0B0C0D, 0x01020304});
  EXPECT_EQ(headers, With(before, 62, Hex("0a0b0c0d 01020304")));
  headers = before;
  full.PatchLengths(headers.data(), 1000);
  EXPECT_EQ(headers, With(before, 20, Hex("041c")));
  headers = before;
  full.PatchId(headers.data(), 0xBEEF);
  EXPECT_EQ(headers, With(before, 22, Hex("beef")));
  headers = before;
  full.PatchUrgentPointer(headers.data(), 0xBEEF);
  EXPECT_EQ(headers, With(before, 56, Hex("beef")));
  EXPECT_EQ(HeadersOf(full), before);
}

TEST(TcpTemplate, TimestampsMayComeIntoUseLater) {
  TcpTemplate headers(Fields(false, false));
  headers.UseTimestamps(true);
  EXPECT_TRUE(headers.timestamps());
  EXPECT_EQ(HeadersOf(headers), HeadersOf(TcpTemplate(Fields(true, false))));
  headers.UseTimestamps(false);
  EXPECT_EQ(HeadersOf(headers), HeadersOf(TcpTemplate(Fields(false, false))));
}

TEST(TcpTemplate, ASegmentSetInPlaceIsTheOnePatchedInACopy) {
  TcpTemplate headers(Fields(true, true));
  auto copy = HeadersOf(headers);
  const TcpTemplate::Segment segment{
      .sequence = 1, .acknowledgement = 2, .window = 3, .flags = kTcpAck | kTcpPsh};
  headers.PatchSegment(copy.data(), segment);
  headers.PatchTimestamps(copy.data(), {4, 5});
  headers.PatchLengths(copy.data(), 64);
  headers.SetSegment(segment, 64);
  headers.SetTimestamps({4, 5});
  EXPECT_EQ(HeadersOf(headers), copy);
}

TEST(TcpTemplate, TheNextHopMayChange) {
  TcpTemplate headers(Fields(false, false));
  headers.SetDestinationMac(MacAddress({2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(HeadersOf(headers),
            With(HeadersOf(TcpTemplate(Fields(false, false))), 0, Hex("020202020202")));
}

TEST(TcpTemplate, WithSoftwareChecksumsTheFrameIsAccepted) {
  for (const bool timestamps : {false, true}) {
    for (const size_t payload_bytes : {0u, 1u, 64u, 1460u}) {
      SCOPED_TRACE(payload_bytes);
      const TcpTemplate source(Fields(timestamps, true));
      const Bytes payload(payload_bytes, 0x5A);
      Bytes frame(source.data(), source.data() + source.header_bytes());
      source.PatchSegment(frame.data(), {.sequence = 7, .acknowledgement = 8, .window = 9});
      source.PatchLengths(frame.data(), payload_bytes);
      source.FillChecksums(frame.data(), payload);
      frame = frame + payload;
      TcpFrame tcp;
      ASSERT_EQ(ParseTcpFrame(frame.data(), frame.size(), kNoChecksumVerified, &tcp),
                FrameVerdict::kTcp);
      EXPECT_EQ(tcp.segment.payload_bytes, payload_bytes);
      EXPECT_EQ(tcp.segment.sequence, 7u);
      EXPECT_EQ(tcp.segment.options.timestamps.has_value(), timestamps);
      EXPECT_EQ(tcp.flow.vlan_id, 100);
    }
  }
}

TEST(TcpTemplate, OtherOptionsTakeThePlaceOfTheTimestamps) {
  const TcpTemplate source(Fields(true, false));
  TcpOptions options;
  options.timestamps = TcpTimestamps{3, 4};
  options.SetSack(std::array{SackBlock{1, 2}, SackBlock{5, 6}});
  Bytes frame = HeadersOf(source);
  const size_t bytes = source.PatchOptions(frame.data(), options);
  EXPECT_EQ(bytes, 34u + 20 + 12 + 20);
  source.PatchLengths(frame.data(), bytes, 0);
  source.FillChecksums(frame.data(), {});
  EXPECT_EQ(Bytes(frame.begin() + static_cast<ptrdiff_t>(bytes), frame.end()),
            Poisoned(frame.size() - bytes));
  frame.resize(bytes);
  TcpFrame tcp;
  ASSERT_EQ(ParseTcpFrame(frame.data(), frame.size(), kNoChecksumVerified, &tcp),
            FrameVerdict::kTcp);
  EXPECT_EQ(tcp.segment.options, options);
}

}  // namespace
}  // namespace xtreme::wire
