// SPDX-License-Identifier: Apache-2.0
//
// Calls on UDP sockets.

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
constexpr uint32_t kKeyBytes = 8;
constexpr uint16_t kFirstPort = 7000;
constexpr uint32_t kPorts = 4;

}  // namespace

void Player::OpenUdp(const Numbers& numbers) {
  xtreme_udp_options options = {};
  options.size = sizeof options;
  const int ring = static_cast<int>(numbers[0] % kRings);
  options.local.port = static_cast<uint16_t>(kFirstPort + numbers[1] % kPorts + 10 * ring);
  memcpy(options.local.ip, World::AddressOf(World::SideOf(ring), 0).ip, 16);
  options.user_data = numbers[2];
  options.multicast_loop = numbers[2] % 2;
  options.max_held = numbers[2] % 5 == 0 ? 4 : 0;
  options.reuse = numbers[2] % 3 == 0;
  options.tos = numbers[2] % 11 == 0 ? 0x10 : 0;
  options.multicast_ttl = numbers[2] % 13 == 0 ? 7 : 0;
  const bool any = numbers[2] % 7 == 0;
  const xtreme_address bound = options.local;
  if (any) memset(options.local.ip + 12, 0, 4);
  Socket socket;
  const int result = xtreme_udp_open(world_->ring(ring), &options, &socket.handle);
  Note("udp_open ring " + std::to_string(ring) + " port " + std::to_string(options.local.port) +
       " = " + std::to_string(result) + " " + std::to_string(socket.handle.value));
  Check(result == 0 || result == -EADDRINUSE || (IsSmall(ring) && result == -EMFILE),
        "udp_open: " + std::to_string(result));
  if (result != 0) return;
  socket.ring = ring;
  socket.type = Type::kUdp;
  socket.local = bound;
  socket.max_held = options.max_held;
  socket.user_data = options.user_data;
  socket.operations.insert(0);
  model_.Add(socket);
}

void Player::ConnectUdp(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], Type::kUdp);
  if (socket == nullptr) return;
  const int to = (World::SideOf(socket->ring) == 0 ? 2 : 0) + static_cast<int>(numbers[1] % 2);
  const xtreme_address peer = World::AddressOf(
      World::SideOf(to), static_cast<uint16_t>(kFirstPort + 10 * to + numbers[1] / 2 % kPorts));
  const uint64_t cookie = next_cookie_++;
  const int result = xtreme_udp_connect(socket->handle, &peer, cookie);
  Note("udp_connect " + std::to_string(socket->handle.value) + " = " + std::to_string(result));
  Check(result == 0, "udp_connect: " + std::to_string(result));
  if (result != 0) return;
  socket->remote = peer;
  socket->operations.insert(cookie);
}

void Player::SendUdp(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], Type::kUdp);
  if (socket == nullptr) return;
  const bool connected = socket->remote.port != 0 && numbers[1] % 2 == 0;
  const int to = (World::SideOf(socket->ring) == 0 ? 2 : 0) + static_cast<int>(numbers[2] % 2);
  const xtreme_address peer =
      connected ? socket->remote
                : World::AddressOf(World::SideOf(to), static_cast<uint16_t>(
                                       kFirstPort + 10 * to + numbers[2] / 2 % kPorts));
  static constexpr std::array<uint32_t, 8> kLengths = {8, 20, 100, 180, 1000, 1465, 4000, 9000};
  const uint32_t length = kLengths[numbers[1] / 2 % 8] + numbers[1] / 16 % 8;
  std::vector<uint8_t> bytes(length);
  const uint64_t key = model_.AddDatagram({socket->local, peer, length});
  memcpy(bytes.data(), &key, kKeyBytes);
  WritePattern(key, kKeyBytes, bytes.data() + kKeyBytes, length - kKeyBytes);
  xtreme_send_options options = {};
  options.flags = (numbers[1] >> 8) & (XTREME_NOW_OR_FAIL | XTREME_NO_DOORBELL | XTREME_WANT_DONE |
                                       XTREME_WANT_WIRE);
  options.cookie = next_cookie_++;
  const int result =
      connected ? xtreme_send(socket->handle, bytes.data(), length, &options)
                : xtreme_send_to(socket->handle, &peer, bytes.data(), length, &options);
  Note("udp send " + std::to_string(socket->handle.value) + " length " + std::to_string(length) +
       " flags " + std::to_string(options.flags) + " cookie " + std::to_string(options.cookie) +
       " = " + std::to_string(result));
  Check(MayBeRefused(*socket, result), "udp send: " + std::to_string(result));
  if (result < 0) return model_.RemoveDatagram(key);
  if ((options.flags & XTREME_WANT_DONE) != 0) socket->done.push_back({options.cookie});
  if ((options.flags & XTREME_WANT_WIRE) != 0) socket->wire.push_back({options.cookie});
}

void Player::SendUdpBuffer(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], Type::kUdp);
  if (socket == nullptr) return;
  const int of = static_cast<int>(numbers[2] % 8 == 0 ? numbers[2] / 8 % kRings
                                                      : static_cast<uint32_t>(socket->ring));
  Lent lent = {};
  if (xtreme_buffer_acquire(world_->ring(of), &lent.buffer, &lent.data, &lent.capacity) != 0) {
    return;
  }
  const int to = World::SideOf(socket->ring) == 0 ? 2 : 0;
  const xtreme_address peer = World::AddressOf(
      World::SideOf(to), static_cast<uint16_t>(kFirstPort + 10 * to + numbers[2] % kPorts));
  const uint32_t length = std::min(kKeyBytes + numbers[1] % 1400, lent.capacity);
  const uint64_t key = model_.AddDatagram({socket->local, peer, length});
  memcpy(lent.data, &key, kKeyBytes);
  WritePattern(key, kKeyBytes, lent.data + kKeyBytes, length - kKeyBytes);
  lent.socket = socket->handle.value;
  lent.cookie = next_cookie_++;
  xtreme_send_options options = {};
  options.flags = XTREME_WANT_DONE |
                  ((numbers[1] >> 16) & (XTREME_NO_DOORBELL | XTREME_WANT_WIRE));
  options.cookie = lent.cookie;
  xtreme_buffer_ref(lent.buffer);
  const int result =
      xtreme_send_buffer(socket->handle, &peer, lent.buffer, lent.data, length, &options);
  Note("udp send_buffer " + std::to_string(socket->handle.value) + " length " +
       std::to_string(length) + " cookie " + std::to_string(options.cookie) + " = " +
       std::to_string(result));
  Check(MayBeRefused(*socket, result), "udp send_buffer: " + std::to_string(result));
  if (result < 0) {
    model_.RemoveDatagram(key);
    xtreme_buffer_release(lent.buffer);
    xtreme_buffer_release(lent.buffer);
    return;
  }
  socket->done.push_back({options.cookie});
  if ((options.flags & XTREME_WANT_WIRE) != 0) socket->wire.push_back({options.cookie});
  lent_.push_back(lent);
}

}  // namespace xtreme::model
