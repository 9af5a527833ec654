// SPDX-License-Identifier: Apache-2.0
//
// A bed with a Linux host at the other end of a wire that loses frames: its kernel's TCP answers a
// ring's.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "api/xtreme.hpp"
#include "tools/connectx/testing/test_bed.h"

namespace xtreme::connectx {
namespace {

constexpr uint16_t kPort = 7001;
constexpr size_t kBytes = 200'000;
constexpr int64_t kPatienceNs = 10'000'000'000;

// Sends back whatever comes by the first connection, until that ends.
void EchoOnce(int listener) {
  const int connection = ::accept(listener, nullptr, nullptr);
  char bytes[4096];
  for (ssize_t got; (got = ::recv(connection, bytes, sizeof bytes, 0)) > 0;) {
    if (::send(connection, bytes, static_cast<size_t>(got), MSG_NOSIGNAL) != got) break;
  }
  ::close(connection);
}

// Sends a question, hears as many bytes, and closes.
struct Asker {
  void On(const Completion& each) {
    if (each.kind() == kEstablished) {
      socket->Send({reinterpret_cast<const uint8_t*>(question.data()), question.size()});
    }
    if (each.kind() == kPacket) Hear(each);
    if (each.kind() != kTerminated) return;
    ended = true;
    status = each.status;
  }
  void Hear(const Completion& packet) {
    heard.resize(heard.size() + packet.length);
    xtreme_copy_out(&packet, heard.data() + heard.size() - packet.length, packet.length);
    if (heard.size() == question.size()) socket->Close();
  }

  TcpSocket* socket;
  std::string question;
  std::string heard = {};
  bool ended = false;
  int status = 0;
};

TEST(Host, ItsKernelAnswersARingThroughTheFaultsOfTheWire) {
  TestBed bed;
  const int listener = bed.HostSocket(0, SOCK_STREAM);
  sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(kPort)};
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  std::thread host(&EchoOnce, listener);
  auto ring = Ring::Open(RingOptions::Dev("eth2"));
  ASSERT_TRUE(ring.ok()) << ring.error().message;
  ASSERT_TRUE(ring->Start().ok());
  auto socket = ring->ConnectTcp(*ParseAddress("10.0.0.9:7001"));
  ASSERT_TRUE(socket.ok()) << socket.error().message;
  std::string sent(kBytes, ' ');
  for (size_t i = 0; i < kBytes; ++i) sent[i] = static_cast<char>('a' + i / 7 % 26);
  Asker asker{.socket = &*socket, .question = sent};
  while (!asker.ended) {
    const Batch batch = ring->Wait(kPatienceNs);
    ASSERT_FALSE(batch.empty()) << asker.heard.size();
    for (const Completion& each : batch) asker.On(each);
  }
  EXPECT_EQ(asker.status, 0);
  EXPECT_TRUE(asker.heard == sent) << asker.heard.size();
  host.join();
  ::close(listener);
  EXPECT_GT(bed.Counter(0, "impaired_rx_lost") + bed.Counter(0, "impaired_tx_lost"), 0u);
  EXPECT_TRUE(bed.Violations().empty());
}

// By the route of groups, as a publisher that names no interface.
TEST(Host, ItPublishesToGroupsThatARingHears) {
  TestBed bed;
  const int publisher = bed.HostSocket(0, SOCK_DGRAM);
  sockaddr_in group = {.sin_family = AF_INET, .sin_port = htons(kPort)};
  inet_pton(AF_INET, "239.1.1.1", &group.sin_addr);
  auto ring = Ring::Open(RingOptions::Dev("eth2"));
  ASSERT_TRUE(ring.ok()) << ring.error().message;
  auto feed = ring->OpenUdp({.local = "239.1.1.1:7001"});
  ASSERT_TRUE(feed.ok()) << feed.error().message;
  ASSERT_TRUE(feed->Join(*ParseAddress("239.1.1.1:0")).ok());
  ASSERT_TRUE(ring->Start().ok());
  for (bool heard = false; !heard;) {
    ASSERT_EQ(::sendto(publisher, "tick", 4, 0, reinterpret_cast<const sockaddr*>(&group),
                       sizeof group), 4) << std::strerror(errno);
    for (const Completion& each : ring->Wait(10'000'000)) {
      ASSERT_EQ(each.status, 0) << each.text;
      heard = heard || each.kind() == kPacket;
    }
  }
  ::close(publisher);
}

}  // namespace
}  // namespace xtreme::connectx
