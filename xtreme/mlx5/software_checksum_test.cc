// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/software_checksum.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "stack/base/byte_order.h"
#include "stack/wire/frame.h"
#include "stack/wire/frame_template.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::mlx5 {
namespace {

constexpr uint32_t kBoth = nic::kTxIpChecksum | nic::kTxL4Checksum;
constexpr size_t kIpChecksumAt = 24;
constexpr size_t kUdpChecksumAt = 40;

// A UDP frame without checksums; `vlan`: tagged.
std::vector<uint8_t> Unfinished(const std::string& payload, bool vlan = false) {
  wire::FrameTemplate::Fields fields{
      .destination_mac = wire::MacAddress({2, 0, 0, 0, 0, 2}),
      .source_mac = wire::MacAddress({2, 0, 0, 0, 0, 1}),
      .destination = {wire::Ipv4Address(10, 0, 0, 2), 7000},
      .source = {wire::Ipv4Address(10, 0, 0, 1), 5000}};
  if (vlan) fields.vlan = wire::VlanTag{.id = 7};
  const wire::FrameTemplate headers(fields);
  std::vector<uint8_t> frame(headers.data(), headers.data() + headers.header_bytes());
  headers.PatchLengths(frame.data(), payload.size());
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

// Header and payload cut where the UDP payload begins.
void Finish(uint32_t flags, std::vector<uint8_t>& frame, size_t payload_bytes) {
  const std::span all(frame);
  FinishChecksums(flags, all.first(frame.size() - payload_bytes), all.last(payload_bytes));
}

// What the stack's own template makes of the same frame.
std::vector<uint8_t> Expected(const std::string& payload) {
  std::vector<uint8_t> frame = Unfinished(payload);
  const wire::FrameTemplate headers({.destination_mac = wire::MacAddress({2, 0, 0, 0, 0, 2}),
                                     .source_mac = wire::MacAddress({2, 0, 0, 0, 0, 1}),
                                     .vlan = {},
                                     .destination = {wire::Ipv4Address(10, 0, 0, 2), 7000},
                                     .source = {wire::Ipv4Address(10, 0, 0, 1), 5000}});
  headers.FillChecksums(frame.data(), std::span(frame).last(payload.size()));
  return frame;
}

TEST(SoftwareChecksum, FinishesWhatTheFlagsAskForAndNothingElse) {
  const std::string payload = "an odd number";
  const std::vector<uint8_t> whole = Expected(payload);
  std::vector<uint8_t> frame = Unfinished(payload);
  Finish(nic::kTxIpChecksum, frame, payload.size());
  EXPECT_EQ(base::LoadBe16(&frame[kIpChecksumAt]), base::LoadBe16(&whole[kIpChecksumAt]));
  EXPECT_EQ(base::LoadBe16(&frame[kUdpChecksumAt]), 0);
  Finish(kBoth, frame, payload.size());
  EXPECT_EQ(frame, whole);
  Finish(kBoth, frame, payload.size());
  EXPECT_EQ(frame, whole) << "what stood in the fields does not count";
}

TEST(SoftwareChecksum, TaggedFramesAreFinishedBehindTheirTag) {
  const std::string payload = "tagged";
  std::vector<uint8_t> frame = Unfinished(payload, /*vlan=*/true);
  Finish(kBoth, frame, payload.size());
  const std::vector<uint8_t> whole = Expected(payload);
  EXPECT_TRUE(std::equal(frame.begin() + 18, frame.end(), whole.begin() + 14, whole.end()));
}

TEST(SoftwareChecksum, UdpSumOfZeroIsSentAsItsOtherForm) {
  std::vector<uint8_t> frame = Unfinished(std::string(2, '\0'));
  Finish(kBoth, frame, 2);
  // A payload that brings the sum to 0xffff, whose complement is 0.
  base::StoreBe16(&frame[42], base::LoadBe16(&frame[kUdpChecksumAt]));
  Finish(kBoth, frame, 2);
  EXPECT_EQ(base::LoadBe16(&frame[kUdpChecksumAt]), 0xffff);
}

TEST(SoftwareChecksum, FramesOfOtherKindsAndCutHeadersStayAsTheyAre) {
  const std::string payload = "arp, or short";
  std::vector<uint8_t> frame = Unfinished(payload);
  base::StoreBe16(&frame[12], 0x0806);
  std::vector<uint8_t> before = frame;
  Finish(kBoth, frame, payload.size());
  EXPECT_EQ(frame, before) << "not IPv4";
  for (size_t header = 0; header < 34; ++header) {
    frame = before = Unfinished(payload);
    Finish(kBoth, frame, frame.size() - header);
    EXPECT_EQ(frame, before) << header;
  }
  frame = Unfinished(payload);
  frame[23] = 1;
  Finish(nic::kTxL4Checksum, frame, payload.size());
  EXPECT_EQ(base::LoadBe16(&frame[kUdpChecksumAt]), 0) << "neither UDP nor TCP";
  frame = before = Unfinished(payload);
  frame[14] = before[14] = 0x4f;
  Finish(kBoth, frame, payload.size());
  EXPECT_EQ(frame, before) << "a header longer than there are bytes";
}

}  // namespace
}  // namespace xtreme::mlx5
