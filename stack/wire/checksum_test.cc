// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/checksum.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <span>

#include "stack/wire/golden.h"

namespace xtreme::wire {
namespace {

// RFC 1071 as it is written: 16 bits at a time in network order.
uint16_t PlainChecksum(std::span<const uint8_t> bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i < bytes.size(); ++i) sum += i % 2 == 0 ? bytes[i] << 8 : bytes[i];
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

Bytes RandomBytes(std::mt19937& random, size_t size) {
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

TEST(Checksum, OfTheExampleInRfc1071) {
  EXPECT_EQ(Checksum(Hex("0001 f203 f4f5 f6f7")), static_cast<uint16_t>(~0xDDF2));
}

TEST(Checksum, OfNothingIsAllOnes) { EXPECT_EQ(Checksum({}), 0xFFFF); }

TEST(Checksum, OfAHeaderWithItsRightChecksumIsZero) {
  const Bytes header = Hex("45000073 00004000 4011b861 c0a80001 c0a800c7");
  EXPECT_EQ(Checksum(header), 0);
  EXPECT_EQ(Checksum(With(header, 10, {0, 0})), 0xB861);
}

TEST(Checksum, OfEveryLengthAtEveryAlignmentIsThePlainOne) {
  std::mt19937 random(1);
  const Bytes bytes = RandomBytes(random, 300);
  for (size_t offset = 0; offset < 9; ++offset) {
    for (size_t size = 0; size + offset <= bytes.size(); ++size) {
      const std::span<const uint8_t> piece = std::span(bytes).subspan(offset, size);
      ASSERT_EQ(Checksum(piece), PlainChecksum(piece)) << offset << " " << size;
    }
  }
}

TEST(Checksum, KeepsEveryCarryOfALargeBlockOfOnes) {
  const Bytes ones(65535, 0xFF);
  EXPECT_EQ(Checksum(ones), PlainChecksum(ones));
}

TEST(Checksum, OfPiecesIsThatOfTheWhole) {
  std::mt19937 random(2);
  for (int round = 0; round < 2'000; ++round) {
    const Bytes bytes = RandomBytes(random, random() % 200);
    ChecksumSum sum;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = 1 + random() % (bytes.size() - at);
      sum.Add(std::span(bytes).subspan(at, size));
      at += size;
    }
    ASSERT_EQ(sum.Checksum(), PlainChecksum(bytes)) << "round " << round;
  }
}

TEST(Checksum, ThePseudoHeaderIsSummedAsItsBytes) {
  ChecksumSum sum;
  sum.AddPseudoHeader(Ipv4Address(192, 168, 0, 1), Ipv4Address(192, 168, 255, 199), 17, 0x1234);
  EXPECT_EQ(sum.Checksum(), PlainChecksum(Hex("c0a80001 c0a8ffc7 0011 1234")));
}

TEST(UpdateChecksum, IsThatOfTheChangedHeader) {
  std::mt19937 random(3);
  for (int round = 0; round < 10'000; ++round) {
    Bytes header = RandomBytes(random, 20);
    const uint16_t before = base::LoadBe16(&header[4]);
    const uint16_t checksum = Checksum(header);
    const auto after = static_cast<uint16_t>(random());
    base::StoreBe16(&header[4], after);
    ASSERT_EQ(UpdateChecksum(checksum, before, after), Checksum(header)) << "round " << round;
  }
}

TEST(UpdateChecksum, OfTheExampleInRfc1624IsZeroNotAllOnes) {
  EXPECT_EQ(UpdateChecksum(0xDD2F, 0x5555, 0x3285), 0x0000);
}

}  // namespace
}  // namespace xtreme::wire
