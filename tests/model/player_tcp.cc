// SPDX-License-Identifier: Apache-2.0
//
// Calls on listeners and connections; closing, of all sockets.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/model/pattern.h"
#include "tests/model/player.h"
#include "tests/model/world.h"

namespace xtreme::model {
namespace {

constexpr int kRings = World::kRings;
constexpr uint64_t kStreamKeys = uint64_t{1} << 40;
constexpr uint16_t kFirstPort = 7000;

// What changes how bytes come, not which. One end in four has each.
void Vary(uint32_t number, xtreme_tcp_options* options) {
  const auto one_in_four = [&number] {
    const bool is = number % 4 == 0;
    number /= 4;
    return is;
  };
  if (one_in_four()) options->congestion = XTREME_TCP_NEW_RENO;
  if (one_in_four()) options->congestion = XTREME_TCP_NO_CONGESTION_CONTROL;
  if (one_in_four()) options->mss = 536;
  if (one_in_four()) options->min_rto_ns = 1'000'000;
  if (one_in_four()) options->delayed_ack_ns = 1'000'000;
  if (one_in_four()) options->tos = 0x10;
  if (one_in_four()) {
    options->keepalive_idle_ns = 2'000'000;
    options->keepalive_interval_ns = 3'000'000;
    options->keepalive_probes = 255;
  }
}

}  // namespace

void Player::Listen(const Numbers& numbers) {
  const int ring = static_cast<int>(numbers[0] % kRings);
  xtreme_tcp_options options = {};
  options.size = sizeof options;
  const auto port = static_cast<uint16_t>(kFirstPort + 100 + 10 * ring + numbers[1] % 2);
  options.local = World::AddressOf(World::SideOf(ring), port);
  options.user_data = numbers[2];
  options.manual_credit = numbers[2] % 7 == 0 ? XTREME_ON : XTREME_PRESET;
  options.backlog = numbers[2] % 5 == 0 ? 2 : 0;
  options.receive_window = numbers[2] % 3 == 0 ? 8'000 : 0;
  options.nodelay = numbers[2] % 11 == 0 ? XTREME_OFF : XTREME_PRESET;
  options.linger_ns = 2'000'000'000;
  Vary(numbers[2] / 1'155, &options);
  Socket socket;
  const int result = xtreme_tcp_listen(world_->ring(ring), &options, &socket.handle);
  Note("listen ring " + std::to_string(ring) + " = " + std::to_string(result) + " " +
       std::to_string(socket.handle.value));
  Check(result == 0 || result == -EADDRINUSE, "listen: " + std::to_string(result));
  if (result != 0) return;
  socket.ring = ring;
  socket.type = Type::kListener;
  socket.local = options.local;
  socket.user_data = options.user_data;
  socket.manual = options.manual_credit == XTREME_ON;
  socket.operations.insert(0);
  model_.Add(socket);
}

void Player::Connect(const Numbers& numbers) {
  const int ring = static_cast<int>(numbers[0] % kRings);
  const int to = (World::SideOf(ring) == 0 ? 2 : 0) + static_cast<int>(numbers[1] % 2);
  const xtreme_address peer = World::AddressOf(
      World::SideOf(to), static_cast<uint16_t>(kFirstPort + 100 + 10 * to + numbers[1] / 2 % 2));
  xtreme_tcp_options options = {};
  options.size = sizeof options;
  options.user_data = numbers[2];
  options.send_queue = numbers[2] % 3 == 0 ? 20'000 : 0;
  options.receive_window = numbers[2] % 5 == 0 ? 4'000 : 0;
  options.sack = numbers[2] % 7 == 0 ? XTREME_OFF : XTREME_PRESET;
  options.timestamps = numbers[2] % 11 == 0 ? XTREME_OFF : XTREME_PRESET;
  options.quick_ack = numbers[2] % 13 == 0 ? XTREME_ON : XTREME_PRESET;
  options.linger_ns = 2'000'000'000;
  Vary(numbers[2] / 15'015, &options);
  Socket socket;
  const int result = xtreme_tcp_connect(world_->ring(ring), &peer, &options, &socket.handle);
  Note("connect ring " + std::to_string(ring) + " = " + std::to_string(result) + " " +
       std::to_string(socket.handle.value));
  Check(result == 0 || result == -EADDRINUSE || result == -EMFILE ||
            (model_.upset && result == -ENETUNREACH),
        "connect: " + std::to_string(result));
  if (result != 0) return;
  socket.ring = ring;
  socket.type = Type::kConnection;
  socket.remote = peer;
  socket.key = kStreamKeys + 2 * next_connection_++ + 1;
  socket.user_data = options.user_data;
  model_.Add(socket);
}

void Player::TookStream(Socket& socket, int result, size_t length, uint32_t flags,
                        uint64_t cookie) {
  if (result >= 0) {
    socket.sent += length;
    if (length == 0) return;
    if ((flags & XTREME_WANT_DONE) != 0) socket.done.push_back({cookie, socket.sent});
    if ((flags & XTREME_WANT_WIRE) != 0) socket.wire.push_back({cookie, socket.sent});
    if (result == XTREME_QUEUED && (flags & XTREME_NOW_OR_FAIL) != 0) {
      xtreme_tcp_info info = {};
      info.size = sizeof info;
      xtreme_tcp_get_info(socket.handle, &info);
      Check(false, "QUEUED with NOW_OR_FAIL: unsent " + std::to_string(info.unsent) + " of " +
                       std::to_string(length) + " in flight " + std::to_string(info.in_flight) +
                       " window " + std::to_string(info.send_window) + " congestion window " +
                       std::to_string(info.congestion_window) + " mss " +
                       std::to_string(info.mss) + " recovery " +
                       std::to_string(info.in_recovery) + " retransmits " +
                       std::to_string(info.retransmits));
    }
    return;
  }
  if (result == XTREME_REFUSED_STATE) {
    // The peer may have ended it: TERMINATED follows.
    socket.dead |= socket.connected() && !socket.shut &&
                   resetting_[static_cast<size_t>(socket.ring)] == 0;
    return;
  }
  // Of these no TX_SPACE follows.
  if (result == XTREME_REFUSED_NEIGHBOUR || result == XTREME_REFUSED_ROUTE) {
    return Check(model_.upset, "a stream's send: " + std::to_string(result));
  }
  socket.may_want_again |= socket.wants_space;
  socket.wants_space = true;
  socket.refused_length = length;
  socket.refused_flags = flags & XTREME_NOW_OR_FAIL;
}

void Player::SendStream(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], Type::kConnection);
  if (socket == nullptr) return;
  static constexpr std::array<uint32_t, 8> kLengths = {1, 50, 100, 200, 1000, 1460, 5000, 30000};
  const uint32_t length = kLengths[numbers[1] % 8] + numbers[1] / 8 % 8;
  std::vector<uint8_t> bytes(length);
  WritePattern(socket->key, socket->sent, bytes.data(), length);
  xtreme_send_options options = {};
  options.flags = (numbers[2] >> 8) & (XTREME_NOW_OR_FAIL | XTREME_NO_DOORBELL |
                                       XTREME_WANT_DONE | XTREME_WANT_WIRE);
  if (numbers[2] % 16 == 0) options.flags |= XTREME_WARM;
  options.cookie = next_cookie_++;
  const int result = xtreme_send(socket->handle, bytes.data(), length, &options);
  Note("tcp send " + std::to_string(socket->handle.value) + " length " + std::to_string(length) +
       " flags " + std::to_string(options.flags) + " cookie " + std::to_string(options.cookie) +
       " = " + std::to_string(result));
  if ((options.flags & XTREME_WARM) != 0) return;
  TookStream(*socket, result, length, options.flags, options.cookie);
}

void Player::SendStreamBuffer(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], Type::kConnection);
  if (socket == nullptr) return;
  const int of = static_cast<int>(numbers[2] % 8 == 0 ? numbers[2] / 8 % kRings
                                                      : static_cast<uint32_t>(socket->ring));
  Lent lent = {};
  if (xtreme_buffer_acquire(world_->ring(of), &lent.buffer, &lent.data, &lent.capacity) != 0) {
    return;
  }
  const uint32_t length = std::min(1 + numbers[1] % 1500, lent.capacity);
  WritePattern(socket->key, socket->sent, lent.data, length);
  lent.socket = socket->handle.value;
  lent.cookie = next_cookie_++;
  xtreme_send_options options = {};
  options.flags = XTREME_WANT_DONE | ((numbers[1] >> 16) & (XTREME_NO_DOORBELL | XTREME_WANT_WIRE |
                                                            XTREME_NOW_OR_FAIL));
  options.cookie = lent.cookie;
  xtreme_buffer_ref(lent.buffer);
  const int result =
      xtreme_send_buffer(socket->handle, nullptr, lent.buffer, lent.data, length, &options);
  Note("tcp send_buffer " + std::to_string(socket->handle.value) + " length " +
       std::to_string(length) + " flags " + std::to_string(options.flags) + " cookie " +
       std::to_string(options.cookie) + " = " + std::to_string(result));
  TookStream(*socket, result, length, options.flags, options.cookie);
  if (result >= 0) return lent_.push_back(lent);
  xtreme_buffer_release(lent.buffer);
  xtreme_buffer_release(lent.buffer);
}

void Player::SendSome(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], Type::kConnection);
  if (socket == nullptr) return;
  const uint32_t length = 1 + numbers[1] % 60'000;
  std::vector<uint8_t> bytes(length);
  WritePattern(socket->key, socket->sent, bytes.data(), length);
  xtreme_send_options options = {};
  options.flags = (numbers[2] >> 8) & (XTREME_NO_DOORBELL | XTREME_WANT_DONE | XTREME_WANT_WIRE |
                                       XTREME_NOW_OR_FAIL);
  options.cookie = next_cookie_++;
  size_t taken = 12345;
  const int result = xtreme_send_some(socket->handle, bytes.data(), length, &options, &taken);
  Note("send_some " + std::to_string(socket->handle.value) + " length " + std::to_string(length) +
       " flags " + std::to_string(options.flags) + " cookie " + std::to_string(options.cookie) +
       " = " + std::to_string(result) + " taken " + std::to_string(taken));
  Check((taken > 0) == (result >= 0), "send_some: result and taken disagree");
  Check(taken <= length, "send_some: more than there was");
  TookStream(*socket, result, result >= 0 ? taken : 1, options.flags, options.cookie);
}

void Player::Shutdown(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], Type::kConnection);
  if (socket == nullptr) return;
  const int result = xtreme_shutdown(socket->handle);
  Note("shutdown " + std::to_string(socket->handle.value) + " = " + std::to_string(result));
  if (result == 0) socket->shut = true;
  Check(result == 0 || result == -ENOTCONN, "shutdown: " + std::to_string(result));
}

void Player::Abort(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], Type::kConnection);
  if (socket == nullptr || numbers[1] % 3 != 0) return;
  const int result = xtreme_abort(socket->handle);
  Note("abort " + std::to_string(socket->handle.value) + " = " + std::to_string(result));
  Check(result == 0, "abort: " + std::to_string(result));
  socket->aborted = socket->closed = socket->shut = true;
}

void Player::Close(const Numbers& numbers) {
  const Type type = numbers[1] % 5 == 0   ? Type::kListener
                    : numbers[1] % 5 == 1 ? Type::kUdp
                                          : Type::kConnection;
  Socket* const socket = Pick(numbers[0], type);
  if (socket == nullptr) return;
  const bool detach = numbers[2] % 4 == 0;
  const int result = xtreme_socket_close(socket->handle, detach ? XTREME_DETACH : 0);
  Note("close " + std::to_string(socket->handle.value) + (detach ? " detach" : "") + " = " +
       std::to_string(result));
  Check(result == 0, "close: " + std::to_string(result));
  socket->shut = true;
  (detach ? socket->silent : socket->closed) = true;
  if (!detach) return;
  // The NIC's own references keep those that it still reads.
  ReleaseLent(*socket);
  for (auto& [cookie, fire] : model_.fires) {
    if (model_.FindLast(fire.socket) == socket) fire.wants_done = false;
  }
}

void Player::ReleaseLent(const Socket& socket) {
  std::erase_if(lent_, [&socket](const Lent& lent) {
    bool of_it = false;
    for (const Socket* at = &socket; at != nullptr; at = at->origin) {
      of_it |= lent.socket == at->handle.value;
    }
    if (of_it) xtreme_buffer_release(lent.buffer);
    return of_it;
  });
}

void Player::Credit(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], Type::kConnection);
  if (socket == nullptr || socket->moved) return;
  if (socket->uncredited == 0 || (!socket->manual && numbers[2] % 8 != 0)) return;
  const uint32_t bytes = static_cast<uint32_t>(1 + numbers[1] % socket->uncredited);
  const int result = xtreme_credit(socket->handle, bytes);
  Note("credit " + std::to_string(socket->handle.value) + " " + std::to_string(bytes) + " = " +
       std::to_string(result));
  if (socket->manual) {
    Check(result == 0, "credit: " + std::to_string(result));
    socket->uncredited -= bytes;
    return;
  }
  socket->credits = true;
}

// What was refused is taken now.
void Player::TryAgain(Socket& socket, bool only) {
  if (!socket.open() || socket.shut || socket.refused_length == 0) return;
  std::vector<uint8_t> bytes(socket.refused_length);
  WritePattern(socket.key, socket.sent, bytes.data(), bytes.size());
  xtreme_send_options options = {};
  options.flags = socket.refused_flags;
  const int result = xtreme_send(socket.handle, bytes.data(), bytes.size(), &options);
  Note("again " + std::to_string(socket.handle.value) + " length " +
       std::to_string(bytes.size()) + " flags " + std::to_string(options.flags) + " = " +
       std::to_string(result));
  TookStream(socket, result, bytes.size(), options.flags, 0);
  const bool raced = result == XTREME_REFUSED_STATE;
  Check(result >= 0 || raced || !only,
        "after TX_SPACE a send of " + std::to_string(bytes.size()) + " bytes by " +
            std::to_string(socket.handle.value) + " is refused: " + std::to_string(result) +
            " free " + std::to_string(world_->Counter(socket.ring, "pool", "free")) + " room " +
            std::to_string(xtreme_would_send(socket.handle, socket.refused_length)));
}

}  // namespace xtreme::model
