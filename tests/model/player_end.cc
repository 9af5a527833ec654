// SPDX-License-Identifier: Apache-2.0
//
// The end of a sequence: what is due comes, everything closes, and nothing is left.

#include <algorithm>
#include <functional>
#include <string>

#include "tests/model/player.h"
#include "tests/model/world.h"
#include "tools/connectx/wire/impairment.h"

namespace xtreme::model {
namespace {

constexpr int kRings = World::kRings;
constexpr int kShortRounds = 500;  // Of kStepNs, then of kLongNs.
constexpr int64_t kStepNs = 100'000;
constexpr int64_t kLongNs = 20'000'000;
constexpr size_t kLeastSegment = 512;
constexpr uint64_t kRefillBatch = 8;

// Not one that was never accepted, nor one that has gone: nobody answers for it here, where a
// kernel would.
bool HasPeer(const Socket& socket) {
  return socket.peer != nullptr && !socket.peer->ended && !socket.peer->silent;
}

std::string DescribeDue(const Socket& socket) {
  xtreme_tcp_info info = {};
  info.size = sizeof info;
  xtreme_tcp_get_info(socket.handle, &info);
  return " " + std::to_string(socket.handle.value) + " (operations " +
         std::to_string(socket.operations.size()) + " done " +
         std::to_string(socket.done.size()) + " wire " + std::to_string(socket.wire.size()) +
         " space " + std::to_string(socket.wants_space) + " dead " +
         std::to_string(socket.dead) + " sent " + std::to_string(socket.sent) + " received " +
         (socket.peer == nullptr ? "?" : std::to_string(socket.peer->received)) +
         " in flight " + std::to_string(info.in_flight) + " unsent " +
         std::to_string(info.unsent) + " retransmits " + std::to_string(info.retransmits) + ")";
}

}  // namespace

// Polls and lets time pass until `done`; false: it never was.
bool Player::RunUntil(int rounds, const std::function<bool()>& done) {
  constexpr int kAtLeast = 8;
  for (int i = 0; i < rounds && !model_.failed(); ++i) {
    while (!held_.empty()) Release({15, 0, 0});
    CreditAll();
    world_->Settle();
    world_->Advance(i < kShortRounds ? kStepNs : kLongNs);
    for (int ring = 0; ring < kRings; ++ring) PollOften(ring);
    LearnAddresses();
    if (i > kAtLeast && done()) return true;
  }
  return false;
}

// As a program polls: keepalives of many connections are more frames than a small batch.
void Player::PollOften(int ring) {
  constexpr int kMost = 32;
  for (int polls = 0; polls < kMost && !model_.failed(); ++polls) {
    PollRing(ring, 64, /*keep=*/false);
    if (xtreme_ring_more(world_->ring(ring)) == 0) return;
  }
}

void Player::CreditAll() {
  for (auto& [handle, socket] : model_.sockets()) {
    if (!socket.manual || !socket.connected()) continue;
    xtreme_tcp_info info = {};
    info.size = sizeof info;
    xtreme_tcp_get_info(socket.handle, &info);
    if (info.owed_credit == 0) continue;
    // What moved has brought its debts along; what waits to be handed out is owed too.
    Check(socket.credits || info.owed_credit >= socket.uncredited,
          std::to_string(handle) + " owes " + std::to_string(info.owed_credit) +
              " at the end, should be " + std::to_string(socket.uncredited));
    Check(xtreme_credit(socket.handle, info.owed_credit) == 0, "credit at the end");
    socket.credits = true;
    socket.uncredited = 0;
  }
}

// Nothing is due of it.
bool Player::IsServed(const Socket& socket) const {
  if (!socket.open()) return true;
  const bool stream = socket.type == Type::kConnection;
  if (stream && !HasPeer(socket)) return true;
  if (socket.dead || !socket.operations.empty() || !socket.done.empty()) return false;
  if (!socket.wire.empty() && !socket.wire_may_miss) return false;
  // Some sends are longer than the window ever gets, or than what those without a peer have left of
  // the pool: the receive queue takes from it first.
  const uint64_t buffers = socket.refused_length / kLeastSegment + kRefillBatch;
  const bool fits = socket.wants_space &&
                    xtreme_would_send(socket.handle, socket.refused_length) == XTREME_SENT &&
                    world_->Counter(socket.ring, "pool", "free") >= buffers;
  if (fits) return false;
  return !stream || !socket.peer->open() || socket.peer->received == socket.sent;
}

bool Player::AllServed() {
  if (watched_.AnyDue()) return false;
  for (const auto& [handle, socket] : model_.sockets()) {
    if (!IsServed(socket)) return false;
  }
  return true;
}

bool Player::AllEnded() {
  for (const auto& [handle, socket] : model_.sockets()) {
    if (!socket.ended && !socket.silent) return false;
  }
  for (int ring = 0; ring < kRings; ++ring) {
    if (xtreme_ring_quiescent(world_->ring(ring)) == 0) return false;
    const uint64_t free = world_->Counter(ring, "pool", "free");
    if (free < free_at_start_[static_cast<size_t>(ring)]) return false;
  }
  return true;
}

// Sockets with a rate end before the device has sent what is registered.
bool Player::AllGivenBack() const {
  return std::ranges::all_of(regions_, [](const auto& region) { return region->released > 0; });
}

void Player::Finish() {
  constexpr int kRounds = 12'000, kClosingRounds = 3'000;
  world_->Impair({});
  HealNet();
  Note("--- what is due comes");
  watched_.Signal();
  if (!RunUntil(kRounds, [this] { return AllServed(); }) && !model_.failed()) {
    std::string what = "something does not come:";
    if (watched_.AnyDue()) what += " FD_EVENT";
    for (const auto& [handle, socket] : model_.sockets()) {
      if (IsServed(socket)) continue;
      what += DescribeDue(socket) + " free " +
              std::to_string(world_->Counter(socket.ring, "pool", "free"));
    }
    model_.Fail(what);
  }
  Note("--- everything closes");
  for (auto& [handle, socket] : model_.sockets()) {
    if (!socket.open()) continue;
    Check(xtreme_socket_close(socket.handle, 0) == 0, "close at the end");
    socket.closed = socket.shut = true;
  }
  RunUntil(kClosingRounds, [this] { return AllEnded(); });
  for (int ring = 0; ring < kRings; ++ring) Flush(ring);
  RunUntil(kClosingRounds, [this] { return AllEnded() && AllGivenBack(); });
  CheckEnd();
}

// What left and was not signalled is known to have left by what leaves behind it.
void Player::Flush(int ring) {
  xtreme_udp_options options = {};
  options.size = sizeof options;
  options.local = World::AddressOf(World::SideOf(ring), static_cast<uint16_t>(6000 + ring));
  Socket socket;
  Check(xtreme_udp_open(world_->ring(ring), &options, &socket.handle) == 0, "udp_open at the end");
  socket.ring = ring;
  Socket& added = model_.Add(socket);
  const xtreme_address peer = World::AddressOf(1 - World::SideOf(ring), 1);
  const uint64_t cookie = next_cookie_++;  // No lane's fire has it.
  const xtreme_send_options asked = {.flags = XTREME_WANT_DONE, .reserved = 0, .cookie = cookie};
  const int result = xtreme_send_to(added.handle, &peer, "x", 1, &asked);
  Check(result == XTREME_SENT, "send at the end: " + std::to_string(result));
  added.done.push_back({cookie});
  Check(xtreme_socket_close(added.handle, 0) == 0, "close at the end");
  added.closed = true;
}

void Player::CheckEnd() {
  for (const auto& [handle, socket] : model_.sockets()) {
    Check(socket.ended || socket.silent, "no TERMINATED of " + std::to_string(handle));
  }
  Check(model_.timers.empty(), "timers do not fire");
  Check(model_.moves.empty() || model_.forget_timers, "neither ARRIVED nor TERMINATED of a move");
  for (const auto& [cookie, ring] : model_.ring_operations) {
    Check(false, "no OP_DONE of " + std::to_string(cookie) + " by ring " + std::to_string(ring));
  }
  for (const auto& [cookie, fire] : model_.fires) {
    Check(!fire.wants_done || fire.done, "no TX_DONE of a lane's fire " + std::to_string(cookie));
  }
  for (const auto& [lane, posted] : model_.posted) {
    Check(posted.empty(), "not all came that lane " + std::to_string(lane) + " posted");
  }
  for (const auto& [link, up] : model_.links) {
    Check(up, "ring " + std::to_string(link.first) + " did not say LINK_UP");
  }
  for (const auto& region : regions_) {
    Check(region->released == 1,
          "memory was given back " + std::to_string(region->released) + " times");
  }
  for (int ring = 0; ring < kRings; ++ring) {
    const std::string name = "ring " + std::to_string(ring);
    Check(xtreme_ring_quiescent(world_->ring(ring)) == 1, name + " is not quiescent");
    const uint64_t free = world_->Counter(ring, "pool", "free");
    const uint64_t had = free_at_start_[static_cast<size_t>(ring)];
    Check(free >= had, name + " has " + std::to_string(free) + " free buffers, had " +
                           std::to_string(had));
  }
}

}  // namespace xtreme::model
