// SPDX-License-Identifier: Apache-2.0
//
// Lanes, groups of rings, rates, waking, and settings that change.

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/model/pattern.h"
#include "tests/model/player.h"
#include "tests/model/world.h"

namespace xtreme::model {
namespace {

constexpr size_t kMaxLanes = 8;
constexpr size_t kLaneCapacity = 4'096;

}  // namespace

// --- Lanes ---

void Player::OpenLane(int ring) {
  Lane lane;
  lane.ring = ring;
  const int result = xtreme_lane_open(world_->ring(ring), &lane.handle);
  Check(result == 0, "lane_open: " + std::to_string(result));
  lane.next = next_lane_++ << 32;
  lane_rings_[lane.next >> 32] = ring;
  model_.posted[lane.next >> 32];
  Note("lane " + std::to_string(lane.next >> 32) + " of ring " + std::to_string(ring));
  lanes_.push_back(lane);
}

// What it posted comes all the same.
void Player::CloseLane(size_t index) {
  const Lane lane = lanes_[index];
  lanes_.erase(lanes_.begin() + static_cast<ptrdiff_t>(index));
  Note("close lane " + std::to_string(lane.next >> 32));
  Check(xtreme_lane_close(lane.handle) == 0, "lane_close");
  Check(xtreme_lane_close(lane.handle) == -EBADF, "lane_close twice");
  Check(xtreme_lane_post(lane.handle, 1) == -EBADF, "post to a closed lane");
}

bool Player::Post(Lane& lane) {
  std::deque<uint64_t>& posted = model_.posted[lane.next >> 32];
  const int result = xtreme_lane_post(lane.handle, lane.next);
  if (lane.dead) {
    Check(result == -EPIPE, "post to a closed ring: " + std::to_string(result));
    return false;
  }
  // One that stood before the lane counts until something of the lane is taken, too.
  const bool full = posted.size() + 1 >= kLaneCapacity;
  Check(result == 0 || (full && result == -EAGAIN), "post: " + std::to_string(result));
  if (result == 0) posted.push_back(lane.next++);
  return result == 0;
}

void Player::UseLane(const Numbers& numbers) {
  const int ring = static_cast<int>(numbers[0] % World::kRings);
  if (lanes_.size() < kMaxLanes && numbers[1] % 8 == 0) OpenLane(ring);
  if (lanes_.empty()) return;
  const size_t index = numbers[0] % lanes_.size();
  Lane& lane = lanes_[index];
  const uint32_t count = numbers[2] % 64 == 0 ? kLaneCapacity + 4 : 1 + numbers[2] % 40;
  Note("post " + std::to_string(count) + " by lane " + std::to_string(lane.next >> 32));
  for (uint32_t i = 0; i < count; ++i) {
    if (!Post(lane)) break;
  }
  if (!lane.dead && numbers[1] % 8 != 1) return;
  if (lane.dead) model_.posted.erase(lane.next >> 32);
  CloseLane(index);
}

uint64_t Player::PatchAll(const Prepared& prepared, const Socket& socket) {
  std::vector<uint8_t> bytes;
  const uint64_t key = NextPayload(prepared, socket, &bytes);
  const int patched = xtreme_patch(prepared.handle, 0, bytes.data(), bytes.size());
  Check(patched == (socket.open() ? 0 : -EBADF), "patch: " + std::to_string(patched));
  return key;
}

void Player::FireByLane(const Numbers& numbers) {
  if (prepared_.empty() || lanes_.empty()) return;
  Prepared& prepared = prepared_[numbers[0] % prepared_.size()];
  Socket& socket = *model_.Find(prepared.socket);
  Lane& lane = lanes_[numbers[1] % lanes_.size()];
  if (lane.dead) return;
  if (lane.ring != socket.ring) {
    Check(xtreme_lane_fire(lane.handle, prepared.handle, nullptr) == -EBADF,
          "fire by another ring's lane");
    return;
  }
  const uint64_t key = PatchAll(prepared, socket);
  xtreme_send_options options = {};
  options.flags = numbers[2] & (XTREME_NO_DOORBELL | XTREME_WANT_DONE | XTREME_WANT_WIRE |
                                XTREME_NOW_OR_FAIL);
  // Step by step the device would see but the last of a poll's doorbells.
  options.flags |= XTREME_NO_DOORBELL;
  options.cookie = next_cookie_++;
  if (model_.posted[lane.next >> 32].size() + 4 > kLaneCapacity) return;
  LaneFire& fire = model_.fires[options.cookie];
  fire.ring = socket.ring;
  fire.socket = socket.handle.value;
  fire.wants_done = (options.flags & XTREME_WANT_DONE) != 0;
  fire.wants_wire = (options.flags & XTREME_WANT_WIRE) != 0;
  const int result = xtreme_lane_fire(lane.handle, prepared.handle, &options);
  Note("lane fire " + std::to_string(prepared.handle.value) + " of " +
       std::to_string(socket.handle.value) + " length " + std::to_string(prepared.length) +
       " flags " + std::to_string(options.flags) + " cookie " + std::to_string(options.cookie) +
       " = " + std::to_string(result));
  Check(result == 0, "lane_fire: " + std::to_string(result));
  // The second time it is not armed any more.
  const uint64_t again = next_cookie_++;
  model_.fires[again].ring = socket.ring;
  const xtreme_send_options plain = {
      .flags = XTREME_NO_DOORBELL, .reserved = 0, .cookie = again};
  const bool twice = numbers[2] % 3 == 0;
  if (twice) {
    Check(xtreme_lane_fire(lane.handle, prepared.handle, &plain) == 0, "lane_fire again");
  }
  socket.may_want_again = true;
  Post(lane);
  try_again_ = false;
  for (int i = 0; i < 200 && !model_.posted[lane.next >> 32].empty(); ++i) {
    PollRing(socket.ring, 64, /*keep=*/false);
    world_->Advance(0);
    if (model_.failed()) return;
  }
  try_again_ = true;
  Check(model_.posted[lane.next >> 32].empty(), "what a lane posted does not come");
  const int second = model_.fires[again].error;
  const bool first_left = model_.fires[options.cookie].error == 0;
  if (twice && first_left) {
    Check(second != 0, "a prepared send was fired twice");
    model_.fires.erase(again);
  }
  // Refused, it may leave the second time.
  if (twice && !first_left && second == 0) return LaneFired(prepared, socket, again, key);
  LaneFired(prepared, socket, options.cookie, key);
}

void Player::LaneFired(Prepared& prepared, Socket& socket, uint64_t cookie, uint64_t key) {
  const int error = model_.fires[cookie].error;
  if (!prepared.armed && socket.open()) {
    Check(error == ECANCELED, "fired by a lane though not armed: " + std::to_string(error));
  }
  if (error != 0) return model_.RemoveDatagram(key);
  Check(socket.open() || socket.ended, "fired by a lane though closed");
  prepared.armed = false;
  if (socket.type == Type::kConnection) socket.sent += prepared.length;
}

// --- Groups of rings ---

void Player::OpenGroup(uint32_t number) {
  Group group;
  std::vector<xtreme_ring> rings;
  for (int ring = 0; ring < World::kRings; ++ring) {
    if ((number >> ring) % 2 == 0) continue;
    group.rings.push_back(ring);
    rings.push_back(world_->ring(ring));
  }
  bool busy = false;
  for (const Group& other : groups_) {
    for (const int ring : other.rings) busy |= (number >> ring) % 2 != 0;
  }
  const int result =
      xtreme_group_open(rings.data(), static_cast<int>(rings.size()), &group.handle);
  Note("group_open " + std::to_string(number % 16) + " = " + std::to_string(result));
  Check(result == (rings.empty() ? -EINVAL : busy ? -EBUSY : 0),
        "group_open: " + std::to_string(result));
  if (result != 0) return;
  group.by_time = number / 16 % 2 != 0;
  const int order = group.by_time ? XTREME_GROUP_HARDWARE_TIME : XTREME_GROUP_FAIR;
  Check(xtreme_group_set_order(group.handle, order) == 0, "set_order");
  groups_.push_back(group);
}

void Player::CloseGroupOf(int ring) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (std::count(groups_[i].rings.begin(), groups_[i].rings.end(), ring) == 0) continue;
    Check(xtreme_ring_close(world_->ring(ring)) == -EBUSY, "a ring of a group is closed");
    Check(xtreme_group_close(groups_[i].handle) == 0, "group_close");
    Check(xtreme_group_close(groups_[i].handle) == -EBADF, "group_close twice");
    groups_.erase(groups_.begin() + static_cast<ptrdiff_t>(i));
    return;
  }
}

void Player::UseGroup(const Numbers& numbers) {
  if (numbers[1] % 8 == 0) return OpenGroup(numbers[0]);
  if (groups_.empty()) return;
  const Group& group = groups_[numbers[0] % groups_.size()];
  if (numbers[1] % 16 == 1) return CloseGroupOf(group.rings[0]);
  if (numbers[1] % 8 == 2) return ArmGroup(group, numbers[2]);
  PollGroup(group, numbers[2] % 2 == 0);
}

// Any of its rings wakes it.
void Player::ArmGroup(const Group& group, uint32_t number) {
  constexpr int kEnough = 1'000;
  int result = xtreme_group_arm(group.handle);
  for (int i = 0; i < kEnough && result == 1; ++i) {
    LearnAddresses();
    PollGroup(group, /*keep=*/false);
    world_->Advance(0);
    if (model_.failed()) return;
    result = xtreme_group_arm(group.handle);
  }
  Check(result == 0, "group_arm: " + std::to_string(result) + " again and again");
  const int ring = group.rings[number % group.rings.size()];
  Check(xtreme_ring_wake(world_->ring(ring)) == 0, "wake");
  Check(IsReadable(xtreme_group_fd(group.handle)), "wake: the group is not readable");
}

void Player::PollGroup(const Group& group, bool keep) {
  std::vector<xtreme_completion> some(64);
  for (const int ring : group.rings) armed_[static_cast<size_t>(ring)] = false;
  const int count = xtreme_group_poll(group.handle, some.data(), 64, sizeof some[0]);
  Check(count >= 0 && count <= 64, "group_poll: " + std::to_string(count));
  if (model_.failed()) return;
  some.resize(static_cast<size_t>(count));
  // Of a stream, bytes behind a hole are older than what fills it. Whom nobody knows yet was
  // accepted before, in the same poll.
  const bool streams = std::any_of(some.begin(), some.end(), [this](const auto& one) {
    const Socket* const socket = model_.Find(one.socket.value);
    return one.kind == XTREME_PACKET && (socket == nullptr || socket->type != Type::kUdp);
  });
  int64_t last = 0;
  for (const xtreme_completion& one : some) {
    const int ring = RingOf(one);
    const bool of_it = std::count(group.rings.begin(), group.rings.end(), ring) != 0;
    Check(ring < 0 || of_it, "group_poll: of a ring that is not in it: " + Describe(one));
    if (group.by_time && !streams && one.kind == XTREME_PACKET && one.hw_time_ns != 0) {
      Check(one.hw_time_ns >= last, "group_poll: not by hardware time: " + Describe(one));
      last = one.hw_time_ns;
    }
    TakeOne(ring, one);
  }
  if (!model_.failed()) TakeAll(some, keep, /*was_more=*/true);
}

// --- Rates, moderation, queues, settings ---

void Player::SetRate(const Numbers& numbers) {
  const Type type = numbers[1] % 4 == 0   ? Type::kListener
                    : numbers[1] % 4 == 1 ? Type::kConnection
                                          : Type::kUdp;
  Socket* const socket = Pick(numbers[0], type);
  if (socket == nullptr) return;
  const uint64_t rate = numbers[2] % 4 == 0 ? 0 : 1'000'000 * (1 + numbers[2] / 4 % 3);
  const uint64_t cookie = next_cookie_++;
  const int result = xtreme_socket_set_rate(socket->handle, rate, 0, 0, cookie);
  Note("set_rate " + std::to_string(socket->handle.value) + " " + std::to_string(rate) +
       " cookie " + std::to_string(cookie) + " = " + std::to_string(result));
  Check(result == (type == Type::kListener ? -ENOTCONN : 0),
        "set_rate: " + std::to_string(result));
  if (result != 0) return;
  socket->operations.insert(cookie);
  socket->wire_unordered = true;
}

void Player::Moderate(const Numbers& numbers) {
  const int ring = static_cast<int>(numbers[0] % World::kRings);
  const uint64_t cookie = next_cookie_++;
  const int result =
      xtreme_ring_moderate(world_->ring(ring), static_cast<uint16_t>(numbers[1] % 2 * 8),
                           static_cast<uint16_t>(numbers[1] % 2 * 50), cookie);
  Note("moderate ring " + std::to_string(ring) + " = " + std::to_string(result));
  Check(result == 0 || result == -EALREADY, "moderate: " + std::to_string(result));
  if (result != 0) return;
  model_.ring_operations[cookie] = ring;
  late_[static_cast<size_t>(ring)] = true;
}

void Player::TakeQueues(const Numbers& numbers) {
  if (numbers[1] % 4 != 0) return;
  const int ring = static_cast<int>(numbers[0] % World::kRings);
  xtreme_queues queues = {};
  queues.size = sizeof queues;
  const int result = xtreme_ring_take_queues(world_->ring(ring), &queues);
  Note("take_queues ring " + std::to_string(ring) + " = " + std::to_string(result));
  const bool unsure = resetting_[static_cast<size_t>(ring)] > 0;
  Check(result == 0 || result == -EAGAIN || (unsure && result == -EALREADY) ||
            (unsure && result == -ENETDOWN),
        "take_queues: " + std::to_string(result));
  if (result != 0) return;
  Reset({static_cast<uint32_t>(ring), 0, 0});
}

void Player::SetOptions(const Numbers& numbers) {
  Socket* const socket =
      Pick(numbers[0], numbers[1] % 3 == 0 ? Type::kListener : Type::kConnection);
  if (socket == nullptr) return;
  xtreme_tcp_options options = {};
  options.size = sizeof options;
  options.nodelay = static_cast<uint8_t>(numbers[1] % 3);
  options.quick_ack = static_cast<uint8_t>(numbers[1] / 4 % 3);
  options.send_queue = numbers[2] % 3 == 0 ? 30'000 : 0;
  options.min_rto_ns = numbers[2] % 5 == 0 ? 1'000'000 : 0;
  options.delayed_ack_ns = numbers[2] % 7 == 0 ? 600'000'000 : 0;
  const int result = xtreme_tcp_set_options(socket->handle, &options);
  Note("set_options " + std::to_string(socket->handle.value) + " = " + std::to_string(result));
  Check(result == (options.delayed_ack_ns != 0 ? -EINVAL : 0),
        "set_options: " + std::to_string(result));
}

// --- Waking ---

bool Player::IsReadable(int fd) {
  pollfd one = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&one, 1, 0) == 1;
}

bool Player::Readable(int ring) const { return IsReadable(xtreme_ring_fd(world_->ring(ring))); }

// What said that something waits has it handed out, or forgets it.
void Player::Arm(const Numbers& numbers) {
  const int ring = static_cast<int>(numbers[0] % World::kRings);
  int result = xtreme_ring_arm(world_->ring(ring));
  constexpr int kMost = 16;
  constexpr size_t kEnough = 300 + kMaxLanes * kLaneCapacity / kMost;  // All lanes are full.
  for (size_t i = 0; i < kEnough && result == 1; ++i) {
    PollRing(ring, kMost, /*keep=*/false);
    world_->Advance(0);
    if (model_.failed()) return;
    result = xtreme_ring_arm(world_->ring(ring));
  }
  Note("arm ring " + std::to_string(ring) + " = " + std::to_string(result));
  Check(result == 0, "arm: " + std::to_string(result) + " again and again");
  armed_[static_cast<size_t>(ring)] = true;
  if (numbers[1] % 8 != 0) return;
  Check(xtreme_ring_wake(world_->ring(ring)) == 0, "wake");
  Check(Readable(ring), "wake: not readable");
}

void Player::RingDoorbell(const Numbers& numbers) {
  const int ring = static_cast<int>(numbers[0] % World::kRings);
  Check(xtreme_ring_flush(world_->ring(ring)) == 0, "flush of ring " + std::to_string(ring));
}

// What came from elsewhere woke the ring.
void Player::CheckWoken(int ring, const std::vector<xtreme_completion>& some, bool readable) {
  if (!std::exchange(armed_[static_cast<size_t>(ring)], false) || readable) return;
  for (const xtreme_completion& one : some) {
    const bool by_wire = one.kind == XTREME_ARRIVED || one.kind == XTREME_ACCEPTED ||
                         (one.kind == XTREME_PACKET && (one.flags & XTREME_LOOPBACK) == 0);
    const bool elsewhere =
        one.kind == XTREME_POSTED || (by_wire && !late_[static_cast<size_t>(ring)]);
    Check(!elsewhere, "the ring was armed and did not wake: " + Describe(one));
  }
}

}  // namespace xtreme::model
