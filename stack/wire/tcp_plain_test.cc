// SPDX-License-Identifier: Apache-2.0

#include "stack/wire/tcp_plain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "stack/wire/golden.h"
#include "stack/wire/tcp_frame.h"

namespace xtreme::wire {
namespace {

const Bytes kBare =
    Hex("02000000000e 02000000000f 0800 4500002b 00004000 4006 b6c9 c0000201 c0000202"
        "1092 676d 01020304 0a0b0c0d 5018 2000 b545 0000 616263");
const Bytes kStamped =
    Hex("02000000000e 02000000000f 0800 45000037 00004000 4006 b6bd c0000201 c0000202"
        "1092 676d 01020304 0a0b0c0d 8018 2000 16a7 0000 0101080a 01020304 a0b0c0d0 616263");

struct Said {
  uint32_t sequence = 0;
  uint32_t acknowledgement = 0;
  uint32_t timestamp = 0;
  uint16_t window = 0;
  uint32_t header_bytes = 0;
  uint32_t payload_bytes = 0;
};

// Of `frame`, with as many bytes behind it as have to be readable.
bool Parse(Bytes frame, bool stamped, Said* said) {
  const auto length = static_cast<uint32_t>(frame.size());
  frame.resize(std::max(frame.size(), PlainTcpView::kReadableBytes), kPoison);
  const PlainTcpView view(frame.data());
  const bool is = view.IsTcp() &&
                  view.IsAck(stamped, length, &said->header_bytes, &said->payload_bytes);
  said->sequence = view.sequence();
  said->acknowledgement = view.acknowledgement();
  said->timestamp = view.timestamp();
  said->window = view.window();
  return is;
}

// That it is read as ParseTcpFrame reads it.
void ExpectAsParsed(const Bytes& bytes, bool stamped) {
  Said ack;
  TcpFrame frame;
  ASSERT_TRUE(Parse(bytes, stamped, &ack));
  ASSERT_EQ(ParseTcpFrame(bytes.data(), bytes.size(), kAllChecksumsVerified, &frame),
            FrameVerdict::kTcp);
  EXPECT_EQ(ack.sequence, frame.segment.sequence);
  EXPECT_EQ(ack.acknowledgement, frame.segment.acknowledgement);
  EXPECT_EQ(ack.window, frame.segment.window);
  EXPECT_EQ(ack.payload_bytes, frame.segment.payload_bytes);
  EXPECT_EQ(kEthernetHeaderBytes + ack.header_bytes, frame.payload_offset);
  EXPECT_EQ(frame.segment.options.timestamps.has_value(), stamped);
  if (!stamped) return;
  EXPECT_EQ(ack.timestamp, frame.segment.options.timestamps->value);
}

TEST(PlainTcpViewTest, ReadsWhatTheParserReads) {
  ExpectAsParsed(kBare, false);
  ExpectAsParsed(kStamped, true);
  ExpectAsParsed(With(kBare, 47, Hex("10")), false);
  Bytes padded = With(kBare, 16, Hex("0028"));  // No payload, in the shortest frame there is.
  padded.resize(60, 0);
  ExpectAsParsed(padded, false);
}

TEST(PlainTcpViewTest, AddressesAndPortsAreAsTheyStand) {
  const PlainTcpView view(kStamped.data());
  EXPECT_EQ(view.addresses(), base::LoadNative<uint64_t>(&kStamped[26]));
  EXPECT_EQ(view.ports(), base::LoadNative<uint32_t>(&kStamped[34]));
}

TEST(PlainTcpViewTest, AnotherKindOfFrameIsRefused) {
  Said ack;
  // EtherType, version, header length, fragment bits and offset, protocol.
  for (const auto& [at, bits] : {std::pair{12, 1}, {13, 1}, {14, 0x10}, {14, 1}, {20, 0x20},
                                 {20, 1}, {21, 1}, {23, 1}}) {
    Bytes frame = kStamped;
    frame[at] = static_cast<uint8_t>(frame[at] ^ bits);
    EXPECT_FALSE(Parse(frame, true, &ack)) << at;
  }
}

TEST(PlainTcpViewTest, ASegmentThatSaysMoreIsRefused) {
  Said ack;
  // Every flag but PSH, also ACK missing; reserved bits; data offsets; each byte of the option.
  for (const uint8_t bit : {1, 2, 4, 16, 32, 64, 128}) {
    Bytes frame = kStamped;
    frame[47] ^= bit;
    EXPECT_FALSE(Parse(frame, true, &ack)) << int{bit};
  }
  for (int bit = 0; bit < 8; ++bit) {
    Bytes frame = kStamped;
    frame[46] ^= static_cast<uint8_t>(1 << bit);
    EXPECT_FALSE(Parse(frame, true, &ack)) << bit;
  }
  for (int at = 54; at < 58; ++at) {
    Bytes frame = kStamped;
    frame[at] ^= 1;
    EXPECT_FALSE(Parse(frame, true, &ack)) << at;
  }
  EXPECT_FALSE(Parse(kStamped, false, &ack)) << "timestamps that are not in use";
  EXPECT_FALSE(Parse(kBare, true, &ack)) << "none where they are";
}

TEST(PlainTcpViewTest, LengthsThatDoNotAgreeAreRefused) {
  Said ack;
  for (const bool stamped : {false, true}) {
    const Bytes& whole = stamped ? kStamped : kBare;
    for (size_t length = 42; length < whole.size(); ++length) {
      EXPECT_FALSE(Parse(Bytes(whole.begin(), whole.begin() + length), stamped, &ack)) << length;
    }
    // IP that ends before TCP's header does.
    const uint8_t header_bytes = stamped ? 52 : 40;
    for (uint8_t ip_bytes = 0; ip_bytes < header_bytes; ++ip_bytes) {
      EXPECT_FALSE(Parse(With(whole, 16, {0, ip_bytes}), stamped, &ack)) << int{ip_bytes};
    }
    EXPECT_TRUE(Parse(With(whole, 16, {0, header_bytes}), stamped, &ack));
    EXPECT_EQ(ack.payload_bytes, 0u);
    EXPECT_FALSE(Parse(With(whole, 16, {0xff, 0xff}), stamped, &ack));
  }
}

}  // namespace
}  // namespace xtreme::wire
