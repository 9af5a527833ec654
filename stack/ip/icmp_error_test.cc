// SPDX-License-Identifier: Apache-2.0
#include "stack/ip/icmp_error.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "stack/wire/golden.h"

namespace xtreme::ip {
namespace {

using wire::operator+;

constexpr wire::Endpoint kSocket{wire::Ipv4Address(192, 0, 2, 1), 4242};
constexpr wire::Endpoint kPeer{wire::Ipv4Address(198, 51, 100, 7), 26477};

std::optional<SocketError> Interpret(uint8_t type, uint8_t code, uint16_t mtu = 0,
                                     uint8_t protocol = 17) {
  wire::Bytes message = wire::Bytes{type, code, 0, 0, 0, 0} +
                        wire::Bytes{static_cast<uint8_t>(mtu >> 8), static_cast<uint8_t>(mtu)} +
                        wire::Hex("45000020 12340000 40") + wire::Bytes{protocol} +
                        wire::Hex("0000 c0000201 c6336407 1092676d 000c0000");
  const auto view = wire::IcmpErrorView::Parse(message, wire::ChecksumCheck::kTrusted);
  EXPECT_TRUE(view.ok());
  return InterpretIcmpError(*view, 7);
}

TEST(IcmpError, EveryTypeAndCodeHasItsErrno) {
  struct Row {
    uint8_t type, code;
    int error;
    bool hard;
  };
  for (const Row& row : {
           Row{3, 0, ENETUNREACH, false},   Row{3, 1, EHOSTUNREACH, false},
           Row{3, 2, ENOPROTOOPT, true},    Row{3, 3, ECONNREFUSED, true},
           Row{3, 4, EMSGSIZE, false},      Row{3, 5, EOPNOTSUPP, false},
           Row{3, 6, ENETUNREACH, true},    Row{3, 7, EHOSTDOWN, true},
           Row{3, 8, ENONET, true},         Row{3, 9, ENETUNREACH, true},
           Row{3, 10, EHOSTUNREACH, true},  Row{3, 11, ENETUNREACH, false},
           Row{3, 12, EHOSTUNREACH, false}, Row{3, 13, EHOSTUNREACH, true},
           Row{3, 14, EHOSTUNREACH, true},  Row{3, 15, EHOSTUNREACH, true},
           Row{11, 0, EHOSTUNREACH, false}, Row{11, 1, EHOSTUNREACH, false},
           Row{12, 0, EPROTO, true},
       }) {
    SCOPED_TRACE(testing::Message() << int{row.type} << "/" << int{row.code});
    const auto error = Interpret(row.type, row.code);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error, row.error);
    EXPECT_EQ(error->hard, row.hard);
  }
}

TEST(IcmpError, OfASegmentItTellsTheSequenceNumber) {
  EXPECT_EQ(Interpret(3, 4, 1400, wire::kIpProtocolTcp)->sequence, 0x000C0000u);
  EXPECT_EQ(Interpret(3, 4, 1400, wire::kIpProtocolUdp)->sequence, 0u);
}

TEST(IcmpError, NamesBothEndsOfTheOffendingDatagram) {
  const auto error = Interpret(3, 3);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->source, kSocket);
  EXPECT_EQ(error->destination, kPeer);
  EXPECT_EQ(error->flow, (wire::UdpFlow{.destination = kSocket.address,
                                        .source = kPeer.address,
                                        .destination_port = kSocket.port,
                                        .source_port = kPeer.port,
                                        .vlan_id = 7}));
}

TEST(IcmpError, OnlyFragmentationNeededHasAnMtu) {
  EXPECT_EQ(Interpret(3, 4, 1400)->mtu_bytes, 1400);
  EXPECT_EQ(Interpret(3, 3, 1400)->mtu_bytes, 0);
}

TEST(IcmpError, TellsTheLengthThatTheOffendingHeaderSays) {
  EXPECT_EQ(Interpret(3, 4)->length, 32);
}

TEST(IcmpError, WhatConcernsNoSocketIsNone) {
  EXPECT_FALSE(Interpret(3, 16));
  EXPECT_FALSE(Interpret(3, 3, 0, 1)) << "ICMP has no ports";
  EXPECT_TRUE(Interpret(3, 3, 0, 6));
}

}  // namespace
}  // namespace xtreme::ip
