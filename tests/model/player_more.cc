// SPDX-License-Identifier: Apache-2.0
//
// Prepared sends, groups, runs of datagrams, moves, resets, and rings that close.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "tests/model/pattern.h"
#include "tests/model/player.h"
#include "tests/model/world.h"

namespace xtreme::model {
namespace {

constexpr uint32_t kKeyBytes = 8;
constexpr uint16_t kFirstPort = 7000;

xtreme_address GroupOf(uint32_t number, uint16_t port) {
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 1,
           static_cast<uint8_t>(1 + number % 3)},
          port};
}

}  // namespace

void Player::Prepare(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], numbers[2] % 2 == 0 ? Type::kConnection : Type::kUdp);
  if (socket == nullptr) return;
  Prepared prepared;
  prepared.socket = socket->handle.value;
  prepared.length = kKeyBytes + numbers[1] % (numbers[1] % 4 == 0 ? 1'400 : 120);
  const std::vector<uint8_t> bytes(prepared.length, 0xEE);
  const int result =
      xtreme_prepare(socket->handle, bytes.data(), bytes.size(), &prepared.handle);
  Note("prepare " + std::to_string(socket->handle.value) + " length " +
       std::to_string(prepared.length) + " = " + std::to_string(result) + " " +
       std::to_string(prepared.handle.value));
  const bool unconnected = socket->type == Type::kUdp && socket->remote.port == 0;
  Check(unconnected ? result == -ENOTCONN
                    : result == 0 || result == -ENOBUFS || result == -EMSGSIZE ||
                          (result == -ENOTCONN && socket->shut) ||
                          (result == -ENOTCONN && socket->type == Type::kConnection),
        "prepare: " + std::to_string(result));
  if (result == 0) prepared_.push_back(prepared);
}

void Player::UsePrepared(const Numbers& numbers) {
  if (prepared_.empty()) return;
  const size_t index = numbers[0] % prepared_.size();
  Prepared& prepared = prepared_[index];
  Socket* const socket = model_.Find(prepared.socket);
  const std::string of = " of " + std::to_string(prepared.handle.value);
  if (!socket->open()) {
    Check(xtreme_fire(prepared.handle, nullptr) == XTREME_REFUSED_STATE, "stale fire" + of);
    Check(xtreme_cancel(prepared.handle) == -EBADF, "stale cancel" + of);
    Check(xtreme_rearm(prepared.handle) == -EBADF, "stale rearm" + of);
    Check(xtreme_discard(prepared.handle) == -EBADF, "stale discard" + of);
    prepared_.erase(prepared_.begin() + static_cast<ptrdiff_t>(index));
    return;
  }
  switch (numbers[1] % 10) {
    case 0:
      Note("cancel" + of);
      Check(xtreme_cancel(prepared.handle) == 0, "cancel" + of);
      prepared.armed = false;
      return;
    case 1:
    case 2:
    case 3: {
      const int result = xtreme_rearm(prepared.handle);
      Note("rearm" + of + " = " + std::to_string(result));
      Check(result == 0 || result == -ENOBUFS, "rearm" + of + ": " + std::to_string(result));
      if (result == 0) prepared.armed = true;
      return;
    }
    case 4:
      Note("discard" + of);
      Check(xtreme_discard(prepared.handle) == 0, "discard" + of);
      prepared_.erase(prepared_.begin() + static_cast<ptrdiff_t>(index));
      return;
    default: return Fire(prepared, *socket, numbers[2]);
  }
}

uint64_t Player::NextPayload(const Prepared& prepared, const Socket& socket,
                             std::vector<uint8_t>* bytes) {
  bytes->resize(prepared.length);
  if (socket.type != Type::kUdp) {
    WritePattern(socket.key, socket.sent, bytes->data(), bytes->size());
    return 0;
  }
  const uint64_t key = model_.AddDatagram({socket.local, socket.remote, prepared.length});
  memcpy(bytes->data(), &key, kKeyBytes);
  WritePattern(key, kKeyBytes, bytes->data() + kKeyBytes, bytes->size() - kKeyBytes);
  return key;
}

void Player::Fire(Prepared& prepared, Socket& socket, uint32_t number) {
  std::vector<uint8_t> bytes;
  const uint64_t key = NextPayload(prepared, socket, &bytes);
  const size_t half = bytes.size() / 2;
  Check(xtreme_patch(prepared.handle, half, bytes.data() + half, bytes.size() - half) == 0 &&
            xtreme_patch(prepared.handle, 0, bytes.data(), half) == 0,
        "patch");
  Check(xtreme_patch(prepared.handle, half, bytes.data(), bytes.size()) == -EINVAL,
        "patch beyond the end");
  xtreme_send_options options = {};
  options.flags =
      number & (XTREME_NO_DOORBELL | XTREME_WANT_DONE | XTREME_WANT_WIRE | XTREME_NOW_OR_FAIL);
  if (number % 32 == 0) options.flags |= XTREME_WARM;
  options.cookie = next_cookie_++;
  const int result = xtreme_fire(prepared.handle, &options);
  Note("fire " + std::to_string(prepared.handle.value) + " of " +
       std::to_string(socket.handle.value) + " length " + std::to_string(prepared.length) +
       " flags " + std::to_string(options.flags) + " cookie " + std::to_string(options.cookie) +
       " = " + std::to_string(result));
  Check(result != XTREME_QUEUED, "fire: QUEUED");
  const bool warm = (options.flags & XTREME_WARM) != 0;
  if (!prepared.armed && !warm) Check(result == XTREME_REFUSED_STATE, "fired though not armed");
  const bool armed = prepared.armed;
  if (result == XTREME_SENT && !warm) prepared.armed = false;
  if (warm || !armed) return model_.RemoveDatagram(key);
  if (socket.type == Type::kConnection) {
    return TookStream(socket, result, prepared.length, options.flags | XTREME_NOW_OR_FAIL,
                      options.cookie);
  }
  if (result < 0) return model_.RemoveDatagram(key);
  if ((options.flags & XTREME_WANT_DONE) != 0) socket.done.push_back({options.cookie});
  if ((options.flags & XTREME_WANT_WIRE) != 0) socket.wire.push_back({options.cookie});
}

void Player::Join(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], Type::kUdp);
  if (socket == nullptr) return;
  const xtreme_address group = GroupOf(numbers[1], 0);
  const uint64_t cookie = next_cookie_++;
  const bool leave = numbers[2] % 3 == 0;
  const uint32_t kind = numbers[1] / 4 % 4;  // Any source, two times one source, all but one.
  const xtreme_address from = World::AddressOf(static_cast<int>(numbers[1] / 16 % 2), 0);
  const xtreme_address* const source = kind == 0 ? nullptr : &from;
  const bool exclude = kind == 0 || kind == 3;
  const uint32_t flags = kind == 3 ? XTREME_EXCLUDE_SOURCE : 0;
  model_.NoteAdmitted(*socket);
  const int result = leave ? xtreme_leave(socket->handle, &group, source, cookie)
                           : xtreme_join(socket->handle, &group, source, flags, cookie);
  Note((leave ? "leave " : "join ") + std::to_string(socket->handle.value) + " group " +
       std::to_string(group.ip[15]) + " kind " + std::to_string(kind) + " of side " +
       std::to_string(from.ip[14]) + " = " + std::to_string(result));
  if (result == 0) socket->operations.insert(cookie);
  const auto member = socket->groups.find(Ipv4Of(group));
  const bool is_member = member != socket->groups.end();
  if (leave) {
    const bool joined = is_member && (source == nullptr
                                          ? member->second.exclude
                                          : member->second.listed.count(Ipv4Of(from)) != 0);
    Check(result == (joined ? 0 : -EADDRNOTAVAIL), "leave: " + std::to_string(result));
    if (result != 0) return;
    if (source != nullptr) member->second.listed.erase(Ipv4Of(from));
    const Sources& rest = member->second;
    const bool none = source == nullptr || (!rest.exclude && rest.listed.empty());
    if (none) socket->groups.erase(member);
    return;
  }
  const bool clash = is_member && member->second.exclude != exclude;
  Check(result == 0 || (clash && result == -EINVAL) ||
            (IsSmall(socket->ring) && result == -ENOBUFS),
        "join: " + std::to_string(result));
  if (result != 0) return;
  Sources& sources = is_member ? member->second : socket->groups[Ipv4Of(group)];
  sources.exclude = exclude;
  if (source != nullptr) sources.listed.insert(Ipv4Of(from));
}

void Player::SendMany(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], Type::kUdp);
  if (socket == nullptr) return;
  const int count = static_cast<int>(1 + numbers[1] % 12);
  std::vector<std::vector<uint8_t>> payloads;
  std::vector<xtreme_bytes> datagrams;
  std::vector<uint64_t> keys;
  for (int i = 0; i < count; ++i) {
    const uint32_t length = kKeyBytes + (numbers[2] >> i) % 300;
    keys.push_back(model_.AddDatagram({socket->local, socket->remote, length}));
    std::vector<uint8_t> bytes(length);
    memcpy(bytes.data(), &keys.back(), kKeyBytes);
    WritePattern(keys.back(), kKeyBytes, bytes.data() + kKeyBytes, length - kKeyBytes);
    payloads.push_back(std::move(bytes));
    datagrams.push_back({payloads.back().data(), length, 0});
  }
  int last = 99;
  const int sent = xtreme_send_many(socket->handle, datagrams.data(), count,
                                    numbers[1] % 2 == 0 ? XTREME_NO_DOORBELL : 0, &last);
  Note("send_many " + std::to_string(socket->handle.value) + " " + std::to_string(count) + " = " +
       std::to_string(sent) + " last " + std::to_string(last));
  Check(sent >= 0 && sent <= count && (sent == count) == (last >= 0),
        "send_many: " + std::to_string(sent) + " of " + std::to_string(count) + " last " +
            std::to_string(last));
  if (socket->remote.port == 0) Check(sent == 0, "send_many: to nowhere");
  for (int i = std::max(sent, 0); i < count; ++i) {
    model_.RemoveDatagram(keys[static_cast<size_t>(i)]);
  }
}

void Player::SendToGroup(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], Type::kUdp);
  if (socket == nullptr) return;
  const int to = static_cast<int>(numbers[1] % World::kRings);
  const xtreme_address group =
      GroupOf(numbers[2], static_cast<uint16_t>(kFirstPort + 10 * to + numbers[1] / 4 % 4));
  const uint32_t length = kKeyBytes + numbers[1] / 16 % 600;
  std::vector<uint8_t> bytes(length);
  const uint64_t key = model_.AddDatagram({socket->local, group, length});
  memcpy(bytes.data(), &key, kKeyBytes);
  WritePattern(key, kKeyBytes, bytes.data() + kKeyBytes, length - kKeyBytes);
  const int result = xtreme_send_to(socket->handle, &group, bytes.data(), length, nullptr);
  Note("send to group " + std::to_string(socket->handle.value) + " = " + std::to_string(result));
  Check(MayBeRefused(*socket, result) || result == XTREME_REFUSED_ROUTE,
        "send to group: " + std::to_string(result));
  if (result < 0) model_.RemoveDatagram(key);
}

void Player::Move(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], Type::kConnection);
  if (socket == nullptr) return;
  const uint64_t cookie = next_cookie_++;
  const int to = socket->ring ^ 1;
  const int result = xtreme_socket_move(socket->handle, world_->ring(to), cookie);
  Note("move " + std::to_string(socket->handle.value) + " cookie " + std::to_string(cookie) +
       " = " + std::to_string(result));
  Check(result == 0 || result == -ENOTCONN || result == -EBUSY || result == -ENETDOWN ||
            result == -EMFILE || (has_backup_ && result == -EXDEV),
        "move: " + std::to_string(result));
  if (result != 0) return;
  socket->moved = true;
  model_.moves[cookie] = socket;
}

void Player::Reset(const Numbers& numbers) {
  if (numbers[1] % 4 != 0) return;
  const int ring = static_cast<int>(numbers[0] % World::kRings);
  const uint64_t cookie = next_cookie_++;
  const int result = xtreme_ring_reset(world_->ring(ring), cookie);
  Note("reset ring " + std::to_string(ring) + " = " + std::to_string(result));
  Check(result == 0 || result == -EALREADY, "reset: " + std::to_string(result));
  if (result != 0) return;
  model_.ring_operations[cookie] = ring;
  ++resetting_[static_cast<size_t>(ring)];
  model_.faults = true;
  for (auto& [handle, socket] : model_.sockets()) {
    if (socket.ring != ring) continue;
    // What was sent before a move may be told here, too.
    for (Socket* at = &socket; at != nullptr; at = at->origin) at->wire_may_miss = true;
  }
}

// Memory of the program's own, from which one socket sends parts; when it is given back, nothing
// reads it.
void Player::SendRegistered(const Numbers& numbers) {
  Socket* const socket = Pick(numbers[0], numbers[2] % 3 == 0 ? Type::kUdp : Type::kConnection);
  if (socket == nullptr) return;
  auto made = std::make_shared<Region>();
  Region& region = *made;
  regions_.push_back(made);
  world_->Keep(std::move(made));
  const xtreme_memory memory = {
      .start = region.bytes.data(),
      .length = region.bytes.size(),
      .released =
          [](void* context, void*) {
            auto* const of = static_cast<Region*>(context);
            ++of->released;
            of->bytes.fill(0xDD);
          },
      .context = &region,
      .cookie = next_cookie_++};
  xtreme_buffer* buffer = nullptr;
  const int result = xtreme_buffer_register(world_->ring(socket->ring), &memory, &buffer);
  Note("register = " + std::to_string(result));
  Check(result == 0 || result == -ENOBUFS, "register: " + std::to_string(result));
  if (result != 0) return regions_.pop_back();
  model_.ring_operations[memory.cookie] = socket->ring;
  if (numbers[1] % 4 != 0) world_->Settle();
  if (numbers[1] % 8 != 0) PollRing(socket->ring, 64, /*keep=*/true);
  uint8_t* at = region.bytes.data();
  for (uint32_t i = 0; i < 1 + numbers[1] % 3 && socket->open() && !socket->moved; ++i) {
    const uint32_t length = kKeyBytes + (numbers[1] >> (4 * i)) % 1'400;
    xtreme_buffer_ref(buffer);
    world_->Advance(0);
    if (!SendRegion(*socket, buffer, at, length)) xtreme_buffer_release(buffer);
    at += length;
  }
  xtreme_buffer_release(buffer);
}

bool Player::SendRegion(Socket& socket, xtreme_buffer* buffer, uint8_t* at, uint32_t length) {
  const bool udp = socket.type == Type::kUdp;
  if (udp && socket.remote.port == 0) return false;
  uint64_t key = socket.key;
  if (udp) {
    key = model_.AddDatagram({socket.local, socket.remote, length});
    memcpy(at, &key, kKeyBytes);
    WritePattern(key, kKeyBytes, at + kKeyBytes, length - kKeyBytes);
  } else {
    WritePattern(key, socket.sent, at, length);
  }
  const int result = xtreme_send_buffer(socket.handle, nullptr, buffer, at, length, nullptr);
  Note("send registered " + std::to_string(socket.handle.value) + " length " +
       std::to_string(length) + " = " + std::to_string(result));
  if (!udp) TookStream(socket, result, length, 0, 0);
  if (udp && result < 0) model_.RemoveDatagram(key);
  return result >= 0;
}

void Player::StartTimer(const Numbers& numbers) {
  const int ring = static_cast<int>(numbers[0] % World::kRings);
  const int64_t deadline = world_->now_ns() + numbers[1] % 2'000'000;
  const uint64_t cookie = next_cookie_++;
  xtreme_timer timer = {};
  const int result = xtreme_timer_start(world_->ring(ring), deadline, cookie, &timer);
  Check(result == 0 || result == -ENOBUFS, "timer: " + std::to_string(result));
  if (result != 0) return;
  model_.timers[cookie] = deadline;
  if (numbers[2] % 4 != 0) return;
  Check(xtreme_timer_cancel(world_->ring(ring), timer) == 0, "cancel a timer");
  Check(xtreme_timer_cancel(world_->ring(ring), timer) == -EBADF, "cancel a timer twice");
  model_.timers.erase(cookie);
}

// Closes a ring with all that is on it, and opens it anew.
void Player::Reopen(const Numbers& numbers) {
  if (numbers[1] % 4 != 0) return;
  const int ring = static_cast<int>(numbers[0] % World::kRings);
  // What is on its way from it is to be told first.
  for (const auto& [handle, socket] : model_.sockets()) {
    if (socket.moved && !socket.ended) return;
  }
  if (!model_.moves.empty()) return;
  Note("reopen ring " + std::to_string(ring));
  CloseGroupOf(ring);
  watched_.OnClosed(ring);
  for (Lane& lane : lanes_) lane.dead |= lane.ring == ring;
  for (auto& [lane, posted] : model_.posted) {
    if (lane_rings_[lane] == ring) posted.clear();
  }
  armed_[static_cast<size_t>(ring)] = late_[static_cast<size_t>(ring)] = false;
  std::erase_if(model_.ring_operations, [ring](const auto& one) { return one.second == ring; });
  std::erase_if(model_.links, [ring](const auto& one) { return one.first.first == ring; });
  // What was fired of its sockets is told no more, and of those that moved to it; of those that
  // moved away it is.
  for (auto& [cookie, fire] : model_.fires) {
    const Socket* const socket = model_.FindLast(fire.socket);
    if ((socket == nullptr ? fire.ring : socket->ring) == ring) fire.wants_done = false;
  }
  for (auto& [handle, socket] : model_.sockets()) {
    if (socket.ring != ring) continue;
    socket.shut = socket.silent = socket.ended = true;
    ReleaseLent(socket);
  }
  std::erase_if(prepared_, [&](const Prepared& prepared) {
    return model_.Find(prepared.socket)->ring == ring;
  });
  std::erase_if(model_.timers, [](const auto&) { return true; });
  model_.forget_timers = true;
  Check(world_->CloseRing(ring) == 0, "close a ring");
  model_.faults = true;
  OpenRing(ring);
  // Where nobody is any more, the peers' kernel finds nobody.
  const bool was_away = std::exchange(away_[static_cast<size_t>(ring)], false);
  if (was_away && std::ranges::count(away_, true) == 0) Announce(0);
}

}  // namespace xtreme::model
