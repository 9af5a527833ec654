// SPDX-License-Identifier: Apache-2.0

#include "samples/market/order_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "samples/publisher/feed.h"
#include "samples/publisher/line_sockets.h"
#include "samples/trading/ouch42.h"
#include "samples/trading/soup_bin_tcp.h"

namespace market {
namespace {

namespace soup = trading::soup;

constexpr char kAddress[] = "127.26.5.1";  // Nobody else's.

class OrderPortTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(port_.Open(), ""); }
  void TearDown() override {
    for (const int fd : clients_) close(fd);
  }

  int Connect() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(26'500)};
    inet_pton(AF_INET, kAddress, &to.sin_addr);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    clients_.push_back(fd);
    return fd;
  }
  template <typename Bytes>
  static void Send(int fd, const Bytes& bytes) {
    EXPECT_EQ(send(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  static void LogIn(int fd) {
    Send(fd, soup::Emit(soup::LoginRequest{.user = soup::PadRight<6>("me"),
                                           .password = soup::PadRight<10>("x"),
                                           .session = soup::MakeSession(""),
                                           .sequence = 1}));
  }
  static void Order(int fd, const std::string& token) {
    trading::ouch::Message order;
    order.type = trading::ouch::Type::kEnterOrder;
    order.token = soup::PadRight<14>(token);
    order.side = 'B';
    order.price = 100;
    order.shares = 10;
    order.time_in_force = trading::ouch::kMarketHours;
    order.stock = feed::itch::MakeStock("XTRA");
    std::array<uint8_t, trading::ouch::kMostBytes> bytes;
    const size_t length = trading::ouch::Emit(order, bytes);
    // At once: Nagle's algorithm would keep the second part.
    const auto header = soup::Header(soup::Type::kUnsequenced, length);
    std::vector<uint8_t> packet(header.begin(), header.end());
    packet.insert(packet.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length));
    Send(fd, packet);
  }
  // Serves until the client has got packets of these types, one letter each.
  void Await(int fd, const std::string& types) {
    std::string got;
    soup::Stream stream;
    for (int turns = 0; got.size() < types.size() && turns < 10'000; ++turns) {
      port_.Serve(0);
      pollfd readable = {.fd = fd, .events = POLLIN};
      if (poll(&readable, 1, 1) != 1) continue;
      std::array<uint8_t, 4'096> bytes;
      const ssize_t length = recv(fd, bytes.data(), bytes.size(), 0);
      if (length <= 0) break;
      stream.On(std::span(bytes).first(static_cast<size_t>(length)),
                [&got](const soup::Packet& packet) { got += static_cast<char>(packet.type); });
    }
    EXPECT_EQ(got, types);
  }

  publisher::LineSockets sockets_;
  publisher::Feed feed_{{.loss = 1}, &sockets_};  // Nothing of it is sent.
  Exchange exchange_{{}, &feed_};
  OrderPort port_{{.address = kAddress}, &exchange_};
  std::vector<int> clients_;
};

TEST_F(OrderPortTest, WhoLogsInAfterTheDayIsToldThatItIsOver) {
  const int before = Connect();
  LogIn(before);
  Await(before, "A");
  Order(before, "T1");
  Await(before, "S");
  port_.EndSession();
  Await(before, "Z");
  const int after = Connect();
  LogIn(after);
  Await(after, "ASZ");
}

TEST_F(OrderPortTest, OrdersAreNotTakenAfterTheDay) {
  const int client = Connect();
  LogIn(client);
  Await(client, "A");
  port_.EndSession();
  Order(client, "T1");
  Await(client, "Z");
  for (int turns = 0; port_.counters().late == 0 && turns < 10'000; ++turns) port_.Serve(0);
  EXPECT_EQ(port_.counters().late, 1u);
  EXPECT_EQ(exchange_.counters().orders, 0u);
}

TEST_F(OrderPortTest, ADebugPacketMayComeBeforeTheLogin) {
  const int client = Connect();
  Send(client, soup::Emit(soup::Type::kDebug));
  LogIn(client);
  Await(client, "A");
}

}  // namespace
}  // namespace market
