// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/frame.h"

#include <gtest/gtest.h>

#include <memory>

#include "tools/connectx/device/test_frame.h"

namespace xtreme::connectx {
namespace {

TEST(Frame, UdpDatagramIsReadFieldByField) {
  const FrameSpec spec;
  const Bytes bytes = MakeFrame(spec);
  const Frame frame = ParseFrame(bytes);
  EXPECT_EQ(frame.ether_type, 0x0800);
  EXPECT_EQ(frame.vlan_tags, 0);
  EXPECT_EQ(frame.l3, Frame::L3::kIpv4);
  EXPECT_TRUE(frame.l3_whole);
  EXPECT_EQ(frame.l3_offset, 14);
  EXPECT_EQ(frame.source_ip, spec.source_ip);
  EXPECT_EQ(frame.destination_ip, spec.destination_ip);
  EXPECT_EQ(frame.l4, Frame::L4::kUdp);
  EXPECT_EQ(frame.l4_offset, 34);
  EXPECT_EQ(frame.l4_bytes, 8 + spec.payload.size());
  EXPECT_EQ(frame.source_port, 4000);
  EXPECT_EQ(frame.destination_port, 5000);
}

TEST(Frame, OuterOfTwoVlanTagsIsTheOneMatched) {
  const Bytes bytes = MakeFrame({.vlan_tags = {0x88a80064, 0x8100a007}});
  const Frame frame = ParseFrame(bytes);
  EXPECT_EQ(frame.vlan_tags, 2);
  EXPECT_EQ(frame.vlan_tci, 100);
  EXPECT_EQ(frame.ether_type, 0x0800);
  EXPECT_EQ(frame.l4, Frame::L4::kUdp);
}

TEST(Frame, OptionsMoveTheL4Header) {
  const Frame frame = ParseFrame(MakeFrame({.option_bytes = 40}));
  EXPECT_EQ(frame.l3_header_bytes, 60);
  EXPECT_EQ(frame.l4_offset, 74);
  EXPECT_EQ(frame.destination_port, 5000);
}

TEST(Frame, NoFragmentHasPortsTheFirstIncluded) {
  for (uint16_t fragment : {0x2000, 0x2064, 0x0064}) {
    const Frame frame = ParseFrame(MakeFrame({.fragment = fragment}));
    EXPECT_TRUE(frame.fragment);
    EXPECT_EQ(frame.l4, Frame::L4::kNone);
    EXPECT_EQ(frame.destination_port, 0);
    EXPECT_EQ(frame.protocol, 17);
  }
}

TEST(Frame, DontFragmentIsNoFragment) {
  EXPECT_FALSE(ParseFrame(MakeFrame({.fragment = 0x4000})).fragment);
}

TEST(Frame, Ipv6PortsAreRead) {
  const Frame frame = ParseFrame(MakeIpv6Frame({.protocol = 6}));
  EXPECT_EQ(frame.l3, Frame::L3::kIpv6);
  EXPECT_EQ(frame.l4, Frame::L4::kTcp);
  EXPECT_EQ(frame.source_port, 4000);
}

// What rdma-core's own tests send, with an IPv6 length that counts its header, reaches rules with
// ports on cards.
TEST(Frame, PortsAreReadWhateverIpSaysOfItsLength) {
  Bytes ipv6 = MakeIpv6Frame({.protocol = 6});
  ipv6[19] += 40;
  Bytes longer = MakeFrame({});
  longer[17] += 1;
  Bytes shorter = MakeFrame({});
  shorter[16] = shorter[17] = 0;
  for (const Bytes& bytes : {ipv6, longer, shorter}) {
    const Frame frame = ParseFrame(bytes);
    EXPECT_FALSE(frame.l3_whole);
    EXPECT_EQ(frame.destination_port, 5000);
    EXPECT_FALSE(VerifyChecksums(frame).l3_ok);
    EXPECT_FALSE(VerifyChecksums(frame).l4_ok);
  }
}

// Each prefix stands alone on the heap, so that the address sanitizer sees a read behind it.
TEST(Frame, NoTruncationIsReadBeyondItsEnd) {
  for (const Bytes& whole : {MakeFrame({.vlan_tags = {0x81000001}, .option_bytes = 8}),
                             MakeFrame({.protocol = 6}), MakeIpv6Frame({})}) {
    for (size_t length = 0; length < whole.size(); ++length) {
      const auto prefix = std::make_unique<uint8_t[]>(length);
      std::copy_n(whole.begin(), length, prefix.get());
      const Frame frame = ParseFrame({prefix.get(), length});
      EXPECT_FALSE(VerifyChecksums(frame).l4_ok) << length;
      FillChecksums({prefix.get(), length}, true, true);
    }
  }
}

struct VerdictRow {
  const char* name;
  Bytes frame;
  bool l3_ok;
  bool l4_ok;
};

Bytes With(Bytes frame, size_t at, uint8_t flip) {
  frame[at] ^= flip;
  return frame;
}

Bytes WithZeroUdpChecksum(Bytes frame, size_t l4_offset) {
  frame[l4_offset + 6] = frame[l4_offset + 7] = 0;
  return frame;
}

Bytes Padded(Bytes frame) {
  frame.resize(frame.size() + 9, 0xee);
  return frame;
}

TEST(ChecksumVerdict, IsTheSumsAndNothingElse) {
  const FrameSpec udp;
  const FrameSpec tcp{.protocol = 6};
  const VerdictRow rows[] = {
      {"right UDP", MakeFrame(udp), true, true},
      {"right TCP", MakeFrame(tcp), true, true},
      {"odd length", MakeFrame({.payload = "odd"}), true, true},
      {"empty payload", MakeFrame({.payload = ""}), true, true},
      {"padding is not summed", Padded(MakeFrame(udp)), true, true},
      {"IP options", MakeFrame({.option_bytes = 12}), true, true},
      {"VLAN", MakeFrame({.vlan_tags = {0x81000005}}), true, true},
      {"IPv6 UDP", MakeIpv6Frame(udp), true, true},
      {"IPv6 TCP", MakeIpv6Frame(tcp), true, true},
      {"wrong IP header", With(MakeFrame(udp), 22, 1), false, true},
      {"wrong payload", With(MakeFrame(udp), 50, 0x10), true, false},
      {"wrong TCP payload", With(MakeFrame(tcp), 60, 0x10), true, false},
      {"wrong IPv6 payload", With(MakeIpv6Frame(udp), 70, 1), true, false},
      {"UDP without checksum", WithZeroUdpChecksum(MakeFrame(udp), 34), true, true},
      {"IPv6 UDP without checksum", WithZeroUdpChecksum(MakeIpv6Frame(udp), 54), true, false},
      {"first fragment", MakeFrame({.fragment = 0x2000}), true, false},
      {"last fragment", MakeFrame({.fragment = 0x0010}), true, false},
      {"neither UDP nor TCP", MakeFrame({.protocol = 1}), true, false},
      {"UDP longer than IP", With(MakeFrame(udp), 38, 0x10), true, false},
      {"UDP shorter than its header", With(MakeFrame(udp), 39, 38 ^ 7), true, false},
      {"IP longer than the frame", With(MakeFrame(udp), 16, 0x10), false, false},
      {"no IP at all", With(MakeFrame(udp), 12, 0x01), false, false},
  };
  for (const VerdictRow& row : rows) {
    const ChecksumVerdict verdict = VerifyChecksums(ParseFrame(row.frame));
    EXPECT_EQ(verdict.l3_ok, row.l3_ok) << row.name;
    EXPECT_EQ(verdict.l4_ok, row.l4_ok) << row.name;
  }
}

TEST(FillChecksums, WritesWhatASumWordByWordGives) {
  for (FrameSpec spec : {FrameSpec{}, FrameSpec{.protocol = 6}, FrameSpec{.option_bytes = 24},
                         FrameSpec{.payload = "odd"}, FrameSpec{.vlan_tags = {0x81000009}}}) {
    const Bytes right = MakeFrame(spec);
    spec.checksums = false;
    Bytes sent = MakeFrame(spec);
    FillChecksums(sent, true, true);
    EXPECT_EQ(sent, right);
  }
}

TEST(FillChecksums, LeavesAloneWhatWasNotAskedFor) {
  const Bytes original = MakeFrame({.checksums = false});
  Bytes l3_only = original;
  FillChecksums(l3_only, true, false);
  EXPECT_EQ(l3_only[40], 0xde);
  EXPECT_NE(l3_only[24], 0xde);
  Bytes l4_only = original;
  FillChecksums(l4_only, false, true);
  EXPECT_EQ(l4_only[24], 0xde);
  EXPECT_NE(l4_only[40], 0xde);
}

TEST(FillChecksums, UdpChecksumOfZeroIsSentAsAllOnes) {
  Bytes frame = MakeFrame({.payload = std::string_view("\0\0", 2)});
  // The payload takes the value that makes the sum all ones, so that its complement is 0.
  frame[42] = frame[40];
  frame[43] = frame[41];
  FillChecksums(frame, true, true);
  EXPECT_EQ(frame[40], 0xff);
  EXPECT_EQ(frame[41], 0xff);
}

TEST(FillChecksums, FragmentKeepsItsL4Bytes) {
  const Bytes original = MakeFrame({.fragment = 0x2000, .checksums = false});
  Bytes sent = original;
  FillChecksums(sent, true, true);
  EXPECT_EQ(Bytes(sent.begin() + 34, sent.end()), Bytes(original.begin() + 34, original.end()));
}

}  // namespace
}  // namespace xtreme::connectx
