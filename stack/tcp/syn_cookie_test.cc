// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/syn_cookie.h"

#include <gtest/gtest.h>

#include <vector>

namespace xtreme::tcp {
namespace {

using base::Nanoseconds;
using base::Seconds;

const SynCookie kCookie({0x0123456789ABCDEF, 0xFEDCBA9876543210});
const FlowKey kKey = FlowKey::Of({wire::Ipv4Address(192, 0, 2, 1), 4242},
                                 {wire::Ipv4Address(198, 51, 100, 7), 443}, 0);
constexpr Seq kIrs(0xFFFFFFFF);
constexpr Nanoseconds kNow = Seconds(64 * 1000 + 63);

TEST(SynCookie, BringsBackTheMssRoundedDown) {
  struct Row {
    uint16_t offered, kept;
  };
  for (const Row& row : {Row{1460, 1460}, Row{1459, 1452}, Row{536, 536}, Row{9000, 8960},
                         Row{65535, 8960}, Row{64, 64}, Row{1, 64}}) {
    const Seq iss = kCookie.Make(kKey, kIrs, row.offered, kNow);
    EXPECT_EQ(kCookie.Check(kKey, kIrs, iss + 1, kNow), row.kept) << row.offered;
  }
}

TEST(SynCookie, IsGoodForThisPeriodAndTheNext) {
  const Seq ack = kCookie.Make(kKey, kIrs, 1460, kNow) + 1;
  EXPECT_TRUE(kCookie.Check(kKey, kIrs, ack, kNow + Seconds(1)));
  EXPECT_TRUE(kCookie.Check(kKey, kIrs, ack, kNow + Seconds(64)));
  EXPECT_FALSE(kCookie.Check(kKey, kIrs, ack, kNow + Seconds(65)));
  EXPECT_FALSE(kCookie.Check(kKey, kIrs, ack, kNow - Seconds(64))) << "from the future";
  // The bits of time wrap after 32 periods; the hash does not.
  EXPECT_FALSE(kCookie.Check(kKey, kIrs, ack, kNow + 32 * SynCookie::kPeriod));
}

TEST(SynCookie, IsOfOneConnectionAndOneSyn) {
  const Seq ack = kCookie.Make(kKey, kIrs, 1460, kNow) + 1;
  FlowKey other = kKey;
  ++other.ports;
  EXPECT_FALSE(kCookie.Check(other, kIrs, ack, kNow));
  other = kKey;
  other.addresses ^= 1;
  EXPECT_FALSE(kCookie.Check(other, kIrs, ack, kNow));
  EXPECT_FALSE(kCookie.Check(kKey, kIrs + 1, ack, kNow));
  EXPECT_FALSE(SynCookie({1, 2}).Check(kKey, kIrs, ack, kNow));
}

TEST(SynCookie, NoBitOfItCanBeChanged) {
  const Seq iss = kCookie.Make(kKey, kIrs, 1460, kNow);
  for (int bit = 0; bit < 32; ++bit) {
    EXPECT_FALSE(kCookie.Check(kKey, kIrs, Seq(iss.value() ^ 1u << bit) + 1, kNow)) << bit;
  }
}

TEST(SynCookie, ATimestampBringsBackScaleAndSackAndIsNotAhead) {
  std::vector<SynCookie::Choices> all = {{}, {.sack_permitted = true}};
  for (uint8_t scale = 0; scale <= 14; ++scale) {
    all.push_back({.window_scale = scale});
    all.push_back({.window_scale = scale, .sack_permitted = true});
  }
  for (const uint32_t timestamp : {0u, 5u, 31u, 32u, 1000u, 0xFFFFFFFFu}) {
    for (const SynCookie::Choices& choices : all) {
      const uint32_t encoded = SynCookie::Encode(timestamp, choices);
      EXPECT_EQ(SynCookie::Decode(encoded), choices);
      EXPECT_LE(timestamp - encoded, 31u) << timestamp;
    }
  }
}

}  // namespace
}  // namespace xtreme::tcp
