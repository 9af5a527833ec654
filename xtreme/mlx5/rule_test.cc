// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/rule.h"

#include <endian.h>

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xtreme::mlx5 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

nic::FlowRule FeedRule() {
  return {.match = {.destination_mac = wire::MacAddress({0x01, 0x00, 0x5e, 0x36, 0x0c, 0x6f}),
                    .destination_ip = wire::Ipv4Address(233, 54, 12, 111),
                    .protocol = 17,
                    .destination_port = 26477},
          .priority = 3};
}

// Types of the specs, found as the kernel boundary finds them: by their sizes.
std::vector<int> SpecTypes(const FlowSpecs& specs) {
  std::vector<int> types;
  const auto* at = reinterpret_cast<const uint8_t*>(&specs.attribute()) + sizeof(ibv_flow_attr);
  for (int i = 0; i < specs.attribute().num_of_specs; ++i) {
    ibv_flow_spec spec{};
    std::memcpy(&spec.hdr, at, sizeof(spec.hdr));
    types.push_back(spec.hdr.type);
    at += spec.hdr.size;
  }
  EXPECT_EQ(at, reinterpret_cast<const uint8_t*>(&specs.attribute()) + specs.attribute().size);
  return types;
}

template <typename Spec>
Spec SpecAt(const FlowSpecs& specs, size_t offset) {
  Spec spec;
  std::memcpy(&spec, reinterpret_cast<const uint8_t*>(&specs.attribute()) + offset, sizeof(spec));
  return spec;
}

TEST(FlowSpecs, CanonicalShapeOfAFeedIsEthernetIpv4Udp) {
  const auto specs = FlowSpecs::Create(FeedRule(), 1);
  ASSERT_TRUE(specs.ok());
  const ibv_flow_attr& attribute = specs->attribute();
  EXPECT_EQ(attribute.type, IBV_FLOW_ATTR_NORMAL);
  EXPECT_EQ(attribute.priority, 3);
  EXPECT_EQ(attribute.port, 1);
  EXPECT_EQ(attribute.flags, 0u);
  EXPECT_THAT(SpecTypes(*specs),
              ElementsAre(IBV_FLOW_SPEC_ETH, IBV_FLOW_SPEC_IPV4, IBV_FLOW_SPEC_UDP));
  size_t offset = sizeof(ibv_flow_attr);
  const auto eth = SpecAt<ibv_flow_spec_eth>(*specs, offset);
  EXPECT_THAT(eth.val.dst_mac, ElementsAre(0x01, 0x00, 0x5e, 0x36, 0x0c, 0x6f));
  EXPECT_THAT(eth.mask.dst_mac, testing::Each(0xff));
  EXPECT_EQ(eth.mask.vlan_tag, 0);
  offset += sizeof(eth);
  const auto ipv4 = SpecAt<ibv_flow_spec_ipv4>(*specs, offset);
  EXPECT_EQ(ipv4.val.dst_ip, htobe32(0xe9360c6f));
  EXPECT_EQ(ipv4.mask.dst_ip, ~uint32_t{0});
  EXPECT_EQ(ipv4.mask.src_ip, 0u);
  offset += sizeof(ipv4);
  const auto udp = SpecAt<ibv_flow_spec_tcp_udp>(*specs, offset);
  EXPECT_EQ(udp.val.dst_port, htobe16(26477));
  EXPECT_EQ(udp.mask.dst_port, 0xffff);
  EXPECT_EQ(udp.mask.src_port, 0);
}

TEST(FlowSpecs, VlanTagSharingAndFiveTupleAreAddedWhenAskedFor) {
  nic::FlowRule rule = FeedRule();
  rule.match.vlan_id = 100;
  rule.match.source_ip = wire::Ipv4Address(10, 0, 0, 1);
  rule.match.source_port = 4000;
  rule.match.protocol = 6;
  rule.tag = 0xabcdef;
  rule.share_with_kernel = true;
  const auto specs = FlowSpecs::Create(rule, 1);
  ASSERT_TRUE(specs.ok());
  EXPECT_EQ(specs->attribute().flags, uint32_t{IBV_FLOW_ATTR_FLAGS_DONT_TRAP});
  EXPECT_THAT(SpecTypes(*specs), ElementsAre(IBV_FLOW_SPEC_ETH, IBV_FLOW_SPEC_IPV4,
                                             IBV_FLOW_SPEC_TCP, IBV_FLOW_SPEC_ACTION_TAG));
  const auto eth = SpecAt<ibv_flow_spec_eth>(*specs, sizeof(ibv_flow_attr));
  EXPECT_EQ(eth.val.vlan_tag, htobe16(100));
  EXPECT_EQ(eth.mask.vlan_tag, htobe16(0x0fff));
  const auto tag = SpecAt<ibv_flow_spec_action_tag>(
      *specs, sizeof(ibv_flow_attr) + sizeof(ibv_flow_spec_eth) + sizeof(ibv_flow_spec_ipv4) +
                  sizeof(ibv_flow_spec_tcp_udp));
  EXPECT_EQ(tag.tag_id, 0xabcdefu);
}

TEST(FlowSpecs, WholeAddressHasNoPortsAndWholeStationNoAddress) {
  nic::FlowRule rule = FeedRule();
  rule.match.protocol.reset();
  rule.match.destination_port.reset();
  EXPECT_THAT(SpecTypes(*FlowSpecs::Create(rule, 1)),
              ElementsAre(IBV_FLOW_SPEC_ETH, IBV_FLOW_SPEC_IPV4));
  rule.match.destination_ip.reset();
  EXPECT_THAT(SpecTypes(*FlowSpecs::Create(rule, 1)), ElementsAre(IBV_FLOW_SPEC_ETH));
}

TEST(FlowSpecs, RefusesWhatNoRuleCanSay) {
  nic::FlowRule ports = FeedRule();
  ports.match.protocol.reset();
  EXPECT_THAT(std::string(FlowSpecs::Create(ports, 1).status().message()),
              HasSubstr("ports asked without UDP or TCP"));
  nic::FlowRule icmp = FeedRule();
  icmp.match.protocol = 1;
  EXPECT_THAT(std::string(FlowSpecs::Create(icmp, 1).status().message()),
              HasSubstr("protocol 1 asked"));
  nic::FlowRule tag = FeedRule();
  tag.tag = 1 << 24;
  EXPECT_EQ(FlowSpecs::Create(tag, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace xtreme::mlx5
