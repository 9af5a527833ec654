// SPDX-License-Identifier: Apache-2.0

#include "samples/market/order_port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "fmt/format.h"

namespace market {
namespace {

constexpr int kBacklog = 16;

}  // namespace

OrderPort::~OrderPort() {
  for (const auto& connection : connections_) close(connection->fd);
  if (listen_fd_ >= 0) close(listen_fd_);
}

std::string OrderPort::Open() {
  const auto failed = [](const char* what) {
    return fmt::format("order port: {}: {}", what, strerror(errno));
  };
  listen_fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listen_fd_ < 0) return failed("socket");
  const int reuse = 1;
  setsockopt(listen_fd_, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  sockaddr_in local = {};
  local.sin_family = AF_INET;
  local.sin_port = htons(options_.port);
  if (inet_pton(AF_INET, options_.address.c_str(), &local.sin_addr) != 1) {
    return fmt::format("order port: '{}' is no address", options_.address);
  }
  if (bind(listen_fd_, reinterpret_cast<const sockaddr*>(&local), sizeof local) != 0) {
    return failed("bind");
  }
  return listen(listen_fd_, kBacklog) == 0 ? "" : failed("listen");
}

void OrderPort::Serve(int64_t now_ns) {
  Accept(now_ns);
  std::erase_if(connections_, [&](const std::unique_ptr<Connection>& connection) {
    if (Serve(connection.get(), now_ns)) return false;
    close(connection->fd);
    return true;
  });
}

void OrderPort::EndSession() {
  ended_ = true;
  for (const auto& connection : connections_) {
    TellEnd(connection.get());
    Send(connection.get());
  }
}

// Behind all messages; of who is logged in, once.
void OrderPort::TellEnd(Connection* connection) {
  if (!connection->session.logged_in() || connection->told_end) return;
  const auto end = trading::soup::Emit(trading::soup::Type::kEndOfSession);
  connection->unsent.insert(connection->unsent.end(), end.begin(), end.end());
  connection->told_end = true;
}

void OrderPort::Accept(int64_t now_ns) {
  for (;;) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    const int at_once = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    connections_.push_back(std::make_unique<Connection>());
    connections_.back()->fd = fd;
    connections_.back()->session.Begin(now_ns);
    ++counters_.connections;
  }
}

bool OrderPort::Serve(Connection* connection, int64_t now_ns) {
  std::array<uint8_t, 16 * 1024> bytes;
  const ssize_t received = recv(connection->fd, bytes.data(), bytes.size(), 0);
  if (received == 0 || (received < 0 && errno != EAGAIN)) return false;
  if (received > 0) {
    Receive(connection, std::span(bytes).first(static_cast<size_t>(received)), now_ns);
  }
  if (connection->cut) {
    ++counters_.cut;
    return false;
  }
  connection->session.Pump(now_ns, &connection->unsent);
  if (ended_) TellEnd(connection);
  return Send(connection) && !connection->session.over();
}

void OrderPort::Receive(Connection* connection, std::span<const uint8_t> bytes, int64_t now_ns) {
  connection->session.On(
      bytes, now_ns,
      [&](const trading::soup::LoginRequest& request) {
        connection->account = exchange_->LogIn(request);
        return &connection->account->outbox;
      },
      [&](std::span<const uint8_t> payload) { OnMessage(connection, payload); });
}

void OrderPort::OnMessage(Connection* connection, std::span<const uint8_t> payload) {
  if (connection->cut) return;
  if (ended_) {
    ++counters_.late;
    return;
  }
  const uint64_t number = ++connection->account->orders;
  connection->cut = number == options_.cut_before || number == options_.cut_after;
  if (number == options_.cut_before) return;
  exchange_->OnOrder(connection->account, payload);
}

// False: the client is gone.
bool OrderPort::Send(Connection* connection) {
  std::vector<uint8_t>& unsent = connection->unsent;
  if (unsent.empty()) return true;
  const ssize_t sent = send(connection->fd, unsent.data(), unsent.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN;
  unsent.erase(unsent.begin(), unsent.begin() + sent);
  return true;
}

}  // namespace market
