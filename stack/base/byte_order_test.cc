// SPDX-License-Identifier: Apache-2.0
#include "stack/base/byte_order.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace xtreme::base {
namespace {

TEST(ByteOrder, LoadsReadNetworkOrderAtOddAddresses) {
  const std::array<uint8_t, 9> bytes = {0xA5, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(LoadBe16(&bytes[1]), 0x0102);
  EXPECT_EQ(LoadBe32(&bytes[1]), 0x01020304u);
  EXPECT_EQ(LoadBe64(&bytes[1]), 0x0102030405060708u);
}

TEST(ByteOrder, StoresWriteNetworkOrderAndNothingBeside) {
  std::array<uint8_t, 10> bytes;
  bytes.fill(0xA5);
  StoreBe64(&bytes[1], 0x0102030405060708);
  EXPECT_EQ(bytes, (std::array<uint8_t, 10>{0xA5, 1, 2, 3, 4, 5, 6, 7, 8, 0xA5}));
  bytes.fill(0xA5);
  StoreBe32(&bytes[1], 0x01020304);
  EXPECT_EQ(bytes, (std::array<uint8_t, 10>{0xA5, 1, 2, 3, 4, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5}));
  bytes.fill(0xA5);
  StoreBe16(&bytes[1], 0x0102);
  EXPECT_EQ(bytes, (std::array<uint8_t, 10>{0xA5, 1, 2, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5}));
}

TEST(ByteOrder, AStructOfBigEndiansLiesOverReceivedBytes) {
  struct Header {
    Be16 port;
    Be32 sequence;
    Be64 clock;
  };
  static_assert(sizeof(Header) == 14 && alignof(Header) == 1);
  const std::array<uint8_t, 14> bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  EXPECT_EQ(header.port.value(), 0x0102);
  EXPECT_EQ(header.sequence.value(), 0x03040506u);
  EXPECT_EQ(header.clock.value(), 0x0708090A0B0C0D0Eu);
}

TEST(ByteOrder, ConstantsAreMadeAtCompileTime) {
  constexpr Be16 kEtherType{0x0800};
  static_assert(kEtherType.value() == 0x0800);
  std::array<uint8_t, 2> bytes;
  std::memcpy(bytes.data(), &kEtherType, 2);
  EXPECT_EQ(bytes, (std::array<uint8_t, 2>{0x08, 0x00}));
}

TEST(ByteOrder, AssignmentTakesHostOrder) {
  Be32 word{1};
  word = 0xC0A80001u;
  EXPECT_EQ(word, Be32{0xC0A80001u});
  EXPECT_EQ(word.value(), 0xC0A80001u);
}

}  // namespace
}  // namespace xtreme::base
