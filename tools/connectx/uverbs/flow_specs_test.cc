// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/flow_specs.h"

#include <endian.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace xtreme::connectx {
namespace {

using Bytes = std::vector<std::byte>;

// One specification: header, then `body`.
template <typename Body>
Bytes Spec(uint32_t type, const Body& body, size_t body_bytes = sizeof(Body)) {
  const ib_uverbs_flow_spec_hdr header{.type = type,
                                       .size = static_cast<uint16_t>(sizeof(header) + body_bytes)};
  Bytes bytes(header.size);
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), &body, body_bytes);
  return bytes;
}

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

struct Ipv4Halves {
  ib_uverbs_flow_ipv4_filter value{};
  ib_uverbs_flow_ipv4_filter mask{};
};

struct Ipv6Halves {
  ib_uverbs_flow_ipv6_filter value{};
  ib_uverbs_flow_ipv6_filter mask{};
};

struct PortHalves {
  ib_uverbs_flow_tcp_udp_filter value{};
  ib_uverbs_flow_tcp_udp_filter mask{};
};

PortHalves DestinationPort(uint16_t port) {
  return {.value = {.dst_port = htobe16(port)}, .mask = {.dst_port = 0xffff}};
}

TEST(FlowSpecsTest, ShortIpv4FilterOfLibibverbsIsSplitInItsMiddle) {
  // Source and destination only: 8 bytes of value, 8 of mask.
  const uint32_t body[4] = {0, htobe32(0x0a000002), 0, 0xffffffff};
  FlowRequest request;
  ASSERT_EQ(ParseFlowSpecs(Spec(IBV_FLOW_SPEC_IPV4, body), 1, &request), 0);
  EXPECT_EQ(request.value.destination_ip, 0x0a000002u);
  EXPECT_EQ(request.mask.destination_ip, 0xffffffffu);
  EXPECT_EQ(request.mask.source_ip, 0u);
  EXPECT_EQ(request.value.ether_type, 0x0800);
  EXPECT_EQ(request.mask.ether_type, 0xffff);
}

TEST(FlowSpecsTest, PortsImplyTheirProtocol) {
  FlowRequest request;
  ASSERT_EQ(ParseFlowSpecs(Spec(IBV_FLOW_SPEC_TCP, DestinationPort(80)), 1, &request), 0);
  EXPECT_EQ(request.value.ip_protocol, IPPROTO_TCP);
  EXPECT_EQ(request.mask.ip_protocol, 0xff);
  EXPECT_EQ(request.value.destination_port, 80);
}

TEST(FlowSpecsTest, Ipv6IsItsAddressesAndImpliesItsEtherType) {
  Ipv6Halves ip{.value = {.dst_ip = {0xfd, 1, 2}, .next_hdr = IPPROTO_UDP},
                .mask = {.dst_ip = {0xff, 0xff, 0xff}, .next_hdr = 0xff}};
  const Bytes specs = Spec(IBV_FLOW_SPEC_IPV6, ip) + Spec(IBV_FLOW_SPEC_UDP, DestinationPort(53));
  FlowRequest request;
  ASSERT_EQ(ParseFlowSpecs(specs, 2, &request), 0);
  EXPECT_EQ(request.value.destination_ipv6, (Ipv6Address{0xfd, 1, 2}));
  EXPECT_EQ(request.mask.destination_ipv6, (Ipv6Address{0xff, 0xff, 0xff}));
  EXPECT_EQ(request.mask.source_ipv6, Ipv6Address{});
  EXPECT_EQ(request.value.ether_type, 0x86dd);
  EXPECT_EQ(request.mask.ether_type, 0xffff);
  EXPECT_EQ(request.value.ip_protocol, IPPROTO_UDP);
}

TEST(FlowSpecsTest, BothVersionsOfIpAreInvalid) {
  FlowRequest request;
  const Bytes specs =
      Spec(IBV_FLOW_SPEC_IPV4, Ipv4Halves{}) + Spec(IBV_FLOW_SPEC_IPV6, Ipv6Halves{});
  EXPECT_EQ(ParseFlowSpecs(specs, 2, &request), EINVAL);
}

TEST(FlowSpecsTest, ContradictingProtocolsAreInvalid) {
  Ipv4Halves ip{.value = {.proto = IPPROTO_TCP}, .mask = {.proto = 0xff}};
  const Bytes specs =
      Spec(IBV_FLOW_SPEC_IPV4, ip) + Spec(IBV_FLOW_SPEC_UDP, DestinationPort(53));
  FlowRequest request;
  EXPECT_EQ(ParseFlowSpecs(specs, 2, &request), EINVAL);
}

TEST(FlowSpecsTest, APartOfAnEtherTypeAndAnIpVersionAreInvalid) {
  struct EthernetHalves {
    ib_uverbs_flow_eth_filter value{};
    ib_uverbs_flow_eth_filter mask{};
  } part{.value = {.ether_type = htobe16(0x0800)}, .mask = {.ether_type = htobe16(0xff00)}};
  FlowRequest request;
  const Bytes ethernet = Spec(IBV_FLOW_SPEC_ETH, part);
  EXPECT_EQ(ParseFlowSpecs(ethernet, 1, &request), 0);
  EXPECT_TRUE(request.ethernet_first);
  request = {};
  EXPECT_EQ(ParseFlowSpecs(ethernet + Spec(IBV_FLOW_SPEC_IPV4, Ipv4Halves{}), 2, &request), EINVAL);
  // Of a protocol the same.
  Ipv4Halves ip{.value = {.proto = IPPROTO_UDP}, .mask = {.proto = 0x1f}};
  request = {};
  EXPECT_EQ(ParseFlowSpecs(Spec(IBV_FLOW_SPEC_IPV4, ip) +
                               Spec(IBV_FLOW_SPEC_UDP, DestinationPort(53)),
                           2, &request),
            EINVAL);
  EXPECT_FALSE(request.ethernet_first);
}

TEST(FlowSpecsTest, TagIsTakenOnce) {
  const uint32_t body[2] = {0xabcdef, 0};
  const Bytes tag = Spec(IBV_FLOW_SPEC_ACTION_TAG, body);
  FlowRequest request;
  ASSERT_EQ(ParseFlowSpecs(tag, 1, &request), 0);
  EXPECT_EQ(request.tag, 0xabcdefu);
  FlowRequest twice;
  EXPECT_EQ(ParseFlowSpecs(tag + tag, 2, &twice), EINVAL);
}

TEST(FlowSpecsTest, ARuleMayDropAndCount) {
  const uint64_t nothing = 0;
  const uint32_t handle[2] = {7, 0};
  const Bytes drop = Spec(IBV_FLOW_SPEC_ACTION_DROP, nothing, 0);
  const Bytes count = Spec(IBV_FLOW_SPEC_ACTION_COUNT, handle);
  FlowRequest request;
  ASSERT_EQ(ParseFlowSpecs(drop + count, 2, &request), 0);
  EXPECT_TRUE(request.drop);
  EXPECT_EQ(request.counter, 7u);
  FlowRequest twice;
  EXPECT_EQ(ParseFlowSpecs(count + count, 2, &twice), EINVAL);
}

TEST(FlowSpecsTest, WhatTheDeviceCannotMatchIsNotSupported) {
  FlowRequest request;
  Ipv4Halves tos{.mask = {.tos = 0xff}};
  EXPECT_EQ(ParseFlowSpecs(Spec(IBV_FLOW_SPEC_IPV4, tos), 1, &request), EOPNOTSUPP);
  Ipv6Halves label{.mask = {.flow_label = htobe32(0xfffff)}};
  EXPECT_EQ(ParseFlowSpecs(Spec(IBV_FLOW_SPEC_IPV6, label), 1, &request), EOPNOTSUPP);
  Ipv6Halves hops{.mask = {.hop_limit = 0xff}};
  EXPECT_EQ(ParseFlowSpecs(Spec(IBV_FLOW_SPEC_IPV6, hops), 1, &request), EOPNOTSUPP);
  EXPECT_EQ(ParseFlowSpecs(Spec(IBV_FLOW_SPEC_UDP | IBV_FLOW_SPEC_INNER, DestinationPort(1)), 1,
                           &request),
            EOPNOTSUPP);
}

TEST(FlowSpecsTest, EveryTruncationIsInvalid) {
  const Bytes whole = Spec(IBV_FLOW_SPEC_IPV4, Ipv4Halves{}) +
                      Spec(IBV_FLOW_SPEC_UDP, DestinationPort(1));
  for (size_t length = 0; length < whole.size(); ++length) {
    FlowRequest request;
    EXPECT_EQ(ParseFlowSpecs(std::span(whole).first(length), 2, &request), EINVAL) << length;
  }
}

TEST(FlowSpecsTest, BytesBehindTheLastSpecificationAreInvalid) {
  FlowRequest request;
  const Bytes specs = Spec(IBV_FLOW_SPEC_UDP, DestinationPort(1)) + Bytes(4);
  EXPECT_EQ(ParseFlowSpecs(specs, 1, &request), EINVAL);
}

}  // namespace
}  // namespace xtreme::connectx
