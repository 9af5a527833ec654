// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/icmp_errors.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "stack/base/byte_order.h"
#include "stack/wire/icmp.h"
#include "stack/wire/ipv4.h"
#include "tests/net/namespace.h"

namespace xtreme::host {
namespace {

using net::Namespace;
using wire::IcmpErrorRepr;
using wire::IcmpType;
using wire::Ipv4Address;

constexpr Ipv4Address kOwn(10, 0, 0, 1);
constexpr Ipv4Address kRouter(10, 0, 0, 2);
constexpr Ipv4Address kFar(192, 0, 2, 7);
constexpr uint32_t kSequence = 0xCAFEF00D;
constexpr int kGenerousMs = 20'000;

using Bytes = std::vector<uint8_t>;

// The beginning of a segment from kOwn:4000 to kFar:80.
Bytes Offending(uint8_t protocol = wire::kIpProtocolTcp) {
  Bytes bytes(wire::kIpv4MinHeaderBytes + 8);
  const wire::Ipv4Repr ip{
      .source = kOwn, .destination = kFar, .protocol = protocol, .payload_bytes = 8};
  ip.Emit(bytes);
  base::StoreBe16(&bytes[20], 4000);
  base::StoreBe16(&bytes[22], 80);
  base::StoreBe32(&bytes[24], kSequence);
  return bytes;
}

Bytes Message(const IcmpErrorRepr& icmp, const Bytes& offending = Offending()) {
  Bytes message(wire::kIcmpErrorHeaderBytes + offending.size());
  EXPECT_EQ(icmp.Emit(message, offending), message.size());
  return message;
}

Bytes Datagram(const Bytes& message, uint8_t protocol = wire::kIpProtocolIcmp) {
  Bytes bytes(wire::kIpv4MinHeaderBytes);
  const wire::Ipv4Repr ip{.source = kRouter,
                          .destination = kOwn,
                          .protocol = protocol,
                          .payload_bytes = static_cast<uint16_t>(message.size())};
  ip.Emit(bytes);
  bytes.insert(bytes.end(), message.begin(), message.end());
  return bytes;
}

constexpr IcmpErrorRepr kTooBig{IcmpType::kDestinationUnreachable, wire::kIcmpFragmentationNeeded,
                                1280};

TEST(ParseIcmpErrorTest, TellsWhichSegmentAndWhy) {
  IcmpRefusals refusals;
  const auto error = ParseIcmpError(Datagram(Message(kTooBig)), 5, &refusals);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->error, EMSGSIZE);
  EXPECT_EQ(error->mtu_bytes, 1280);
  EXPECT_EQ(error->sequence, kSequence);
  EXPECT_EQ(error->source, (wire::Endpoint{kOwn, 4000}));
  EXPECT_EQ(error->destination, (wire::Endpoint{kFar, 80}));
  EXPECT_EQ(error->flow.vlan_id, 5);
}

TEST(ParseIcmpErrorTest, EachMessageThatSaysNothingIsCountedByItsReason) {
  struct Row {
    std::string name;
    Bytes datagram;
    uint64_t IcmpRefusals::*reason;
  };
  Bytes corrupt = Datagram(Message(kTooBig));
  corrupt.back() ^= 1;
  Bytes bad_header = Datagram(Message(kTooBig));
  bad_header[8] ^= 1;
  Bytes cut = Message(kTooBig);
  cut.resize(cut.size() - 1);
  base::StoreBe16(&cut[2], 0);
  base::StoreBe16(&cut[2], wire::Checksum(cut));
  IcmpErrorRepr unknown = kTooBig;
  unknown.code = 99;
  const Row rows[] = {
      {"checksum", corrupt, &IcmpRefusals::checksum},
      {"header's checksum", bad_header, &IcmpRefusals::not_ip},
      {"not ICMP", Datagram(Message(kTooBig), 6), &IcmpRefusals::not_ip},
      {"quote cut", Datagram(cut), &IcmpRefusals::malformed},
      {"about UDP", Datagram(Message(kTooBig, Offending(wire::kIpProtocolUdp))),
       &IcmpRefusals::malformed},
      {"unknown code", Datagram(Message(unknown)), &IcmpRefusals::no_meaning},
  };
  for (const Row& row : rows) {
    IcmpRefusals refusals;
    EXPECT_FALSE(ParseIcmpError(row.datagram, 0, &refusals).has_value()) << row.name;
    EXPECT_EQ(refusals.*row.reason, 1u) << row.name;
  }
}

TEST(ParseIcmpErrorTest, EveryTruncationIsRefused) {
  const Bytes whole = Datagram(Message(kTooBig));
  for (size_t length = 0; length < whole.size(); ++length) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    IcmpRefusals refusals;
    EXPECT_FALSE(ParseIcmpError(part, 0, &refusals).has_value()) << length;
  }
}

class IcmpErrorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto host = Namespace::Create();
    auto router = Namespace::Create();
    ASSERT_TRUE(host.ok() && router.ok()) << host.status() << router.status();
    host_ = *std::move(host);
    router_ = *std::move(router);
    for (const char* end : {"0", "1"}) {
      const std::string net = std::string("10.") + end + ".0.";
      const std::string ours = std::string("eth") + end;
      const std::string theirs = std::string("wan") + end;
      ASSERT_TRUE(ConnectByVeth(*host_, ours, *router_, theirs).ok());
      ASSERT_TRUE(host_->AddAddress(ours, net + "1/24").ok());
      ASSERT_TRUE(router_->AddAddress(theirs, net + "2/24").ok());
    }
    const Namespace::Inside inside(*host_);
    auto errors = IcmpErrors::Open(static_cast<uint32_t>(*host_->IndexOf("eth0")));
    ASSERT_TRUE(errors.ok()) << errors.status();
    errors_ = std::make_unique<IcmpErrors>(*std::move(errors));
  }

  void Send(const Bytes& message, const char* to = "10.0.0.1") {
    const Namespace::Inside inside(*router_);
    const FileDescriptor fd(::socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    sockaddr_in address{.sin_family = AF_INET};
    ASSERT_EQ(::inet_pton(AF_INET, to, &address.sin_addr), 1);
    ASSERT_EQ(::sendto(fd.get(), message.data(), message.size(), 0,
                       reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              static_cast<ssize_t>(message.size()));
  }

  size_t Wait() {
    pollfd polled{.fd = errors_->fd(), .events = POLLIN};
    EXPECT_EQ(::poll(&polled, 1, kGenerousMs), 1);
    std::array<ip::SocketError, 4> errors;
    const size_t count = errors_->Poll(errors);
    if (count > 0) last_ = errors[count - 1];
    return count;
  }

  std::unique_ptr<Namespace> host_;
  std::unique_ptr<Namespace> router_;
  std::unique_ptr<IcmpErrors> errors_;
  ip::SocketError last_;
};

TEST_F(IcmpErrorsTest, AnErrorAboutTcpIsSeen) {
  Send(Message(kTooBig));
  EXPECT_EQ(Wait(), 1u);
  EXPECT_EQ(last_.sequence, kSequence);
}

TEST_F(IcmpErrorsTest, EchoesErrorsAboutUdpAndThoseOfOtherInterfacesWakeNobody) {
  Bytes echo(8);
  echo[0] = 8;
  base::StoreBe16(&echo[2], wire::Checksum(echo));
  Send(echo);
  Send(Message(kTooBig, Offending(wire::kIpProtocolUdp)));
  Send(Message(kTooBig), "10.1.0.1");
  Send(Message(kTooBig));
  EXPECT_EQ(Wait(), 1u);
  const IcmpRefusals refusals = errors_->TakeRefusals();
  EXPECT_EQ(refusals.malformed, 0u);  // The filter took them, not the parser.
}

TEST_F(IcmpErrorsTest, ABadChecksumIsCountedOnce) {
  Bytes corrupt = Message(kTooBig);
  corrupt.back() ^= 1;
  Send(corrupt);
  EXPECT_EQ(Wait(), 0u);
  EXPECT_EQ(errors_->TakeRefusals().checksum, 1u);
  EXPECT_EQ(errors_->TakeRefusals().checksum, 0u);
}

TEST_F(IcmpErrorsTest, WhatDoesNotFitIsLeftForTheNextPoll) {
  for (int i = 0; i < 3; ++i) Send(Message(kTooBig));
  std::array<ip::SocketError, 2> two;
  EXPECT_EQ(errors_->Poll(two), 2u);
  EXPECT_EQ(errors_->Poll(two), 1u);
  EXPECT_EQ(errors_->Poll(two), 0u);
}

TEST(IcmpErrorsOpenTest, InterfaceZeroIsRefused) {
  EXPECT_EQ(IcmpErrors::Open(0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace xtreme::host
