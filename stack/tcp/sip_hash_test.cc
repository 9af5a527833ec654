// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/sip_hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace xtreme::tcp {
namespace {

// Key 00 01 .. 0f and input 00 01 ..: appendix A of the paper, and its authors' table.
constexpr SipHash kHash({0x0706050403020100, 0x0F0E0D0C0B0A0908});

std::vector<uint8_t> Counting(uint8_t length) {
  std::vector<uint8_t> bytes(length);
  for (uint8_t i = 0; i < length; ++i) bytes[i] = i;
  return bytes;
}

TEST(SipHash, GivesThePublishedValues) {
  EXPECT_EQ(kHash(Counting(15)), 0xA129CA6149BE45E5);
  const uint64_t published[] = {0x726FDB47DD0E0E31, 0x74F839C593DC67FD, 0x0D6C8009D9A94F5A,
                                0x85676696D7FB7E2D, 0xCF2794E0277187B7, 0x18765564CD99A68D,
                                0xCBC9466E58FEE3CE, 0xAB0200F58B01D137, 0x93F5F5799A932462};
  for (uint8_t length = 0; length < std::size(published); ++length) {
    EXPECT_EQ(kHash(Counting(length)), published[length]) << int{length};
  }
}

TEST(SipHash, WordsHashAsTheirBytes) {
  EXPECT_EQ(kHash(0x0706050403020100, 0x0F0E0D0C0B0A0908), kHash(Counting(16)));
  EXPECT_EQ(kHash(0x0706050403020100, 0x0F0E0D0C0B0A0908, 0x1716151413121110), kHash(Counting(24)));
}

TEST(SipHash, EachHalfOfTheKeyMatters) {
  EXPECT_NE(SipHash({1, 2})(3, 4), SipHash({0, 2})(3, 4));
  EXPECT_NE(SipHash({1, 2})(3, 4), SipHash({1, 0})(3, 4));
}

}  // namespace
}  // namespace xtreme::tcp
