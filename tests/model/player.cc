// SPDX-License-Identifier: Apache-2.0

#include "tests/model/player.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "tests/model/world.h"
#include "tools/connectx/wire/impairment.h"

namespace xtreme::model {
namespace {

constexpr int kRings = World::kRings;
constexpr uint32_t kFewSockets = 6;

}  // namespace

Player::Player(World* world, uint64_t seed, bool trace) : world_(world), trace_(trace) {
  std::mt19937_64 random(seed);
  has_backup_ = model_.many_sources = seed % 3 == 1;
  for (int ring = 0; ring < kRings; ++ring) {
    xtreme_ring_options options = World::Options();
    if (random() % 4 == 0) options.tx_queue_frames = 64;
    else options.tx_queue_frames = 256;
    if (random() % 4 == 0) options.rx_buffers = 256;
    if (random() % 4 == 0) options.completions = 128;
    if (random() % 3 == 0) options.poll_batch = 4;
    if (random() % 3 == 0) options.device_memory = 0;
    options.signal_every = random() % 2 == 0 ? 1 : 8;
    if (random() % 4 == 0) options.fragments = 1;
    if (random() % 4 == 0) options.blueflame = 0;
    if (random() % 4 == 0) options.dump_frames = 64;
    if (random() % 4 == 0) options.histograms = 1;
    if (random() % 4 == 0) options.max_sockets = kFewSockets, options.max_groups = 2;
    if (random() % 4 == 0) options.neighbour_queue = 1;
    if (random() % 4 == 0) options.reassembly_datagrams = 1;
    if (random() % 4 == 0) options.hw_time = XTREME_HW_TIME_PTP;
    options.tcp_time_wait_ms = 100;
    options.user_data = static_cast<uint64_t>(ring);
    if (has_backup_ && World::SideOf(ring) == 0) options.backup_interface = "xt2";
    options.backup_stays = seed % 3 == 0;
    options_[static_cast<size_t>(ring)] = options;
    OpenRing(ring);
  }
}

void Player::OpenRing(int ring) {
  const auto at = static_cast<size_t>(ring);
  const std::string opened = world_->OpenRing(ring, options_[at]);
  if (!opened.empty()) return model_.Fail("ring: " + opened);
  world_->Advance(0);
  free_at_start_[at] = world_->Counter(ring, "pool", "free");
}

Player::~Player() {
  for (const Held& held : held_) xtreme_release(&held.packet, 1, sizeof held.packet);
  for (const Lent& lent : lent_) xtreme_buffer_release(lent.buffer);
  // Until then memory may be given back.
  for (int ring = 0; ring < kRings; ++ring) world_->CloseRing(ring);
}

bool Player::IsSmall(int ring) const {
  return options_[static_cast<size_t>(ring)].max_sockets == kFewSockets;
}

void Player::Note(const std::string& text) {
  if (!trace_) return;
  fprintf(stderr, "%12lld %s\n", static_cast<long long>(world_->now_ns()), text.c_str());
}

void Player::Check(bool right, const std::string& what) {
  if (!right) model_.Fail(what);
}

Socket* Player::Pick(uint32_t number, Type type, bool live) {
  std::vector<Socket*> some;
  for (auto& [handle, socket] : model_.sockets()) {
    if (socket.type == type && (!live || socket.open())) some.push_back(&socket);
  }
  return some.empty() ? nullptr : some[number % some.size()];
}

void Player::Drop(size_t index) {
  const Held held = held_[index];
  held_.erase(held_.begin() + static_cast<ptrdiff_t>(index));
  Socket* const socket = model_.Find(held.socket);
  if (socket != nullptr && socket->type == Type::kUdp) socket->held -= held.packet.count;
  if (socket == nullptr || socket->type != Type::kConnection) return;
  socket->held -= held.packet.length;
  if (!socket->manual) socket->uncredited -= held.packet.length;
}

void Player::Release(const Numbers& numbers) {
  for (uint32_t i = 0; i < 1 + numbers[0] % 16 && !held_.empty(); ++i) {
    const size_t index = (numbers[1] + i * numbers[2]) % held_.size();
    const xtreme_completion packet = held_[index].packet;
    Drop(index);
    xtreme_release(&packet, 1, sizeof packet);
  }
}

void Player::ReleaseElsewhere(const Numbers& numbers) {
  std::vector<xtreme_completion> packets;
  for (uint32_t i = 0; i < 1 + numbers[0] % 16 && !held_.empty(); ++i) {
    const size_t index = (numbers[1] + i * numbers[2]) % held_.size();
    packets.push_back(held_[index].packet);
    Drop(index);
  }
  std::thread([&packets] {
    xtreme_release(packets.data(), static_cast<int>(packets.size()), sizeof packets[0]);
  }).join();
}

void Player::Return(const xtreme_completion& done) {
  for (size_t i = 0; i < lent_.size(); ++i) {
    if (lent_[i].cookie != done.cookie) continue;
    // Nobody reads it any more.
    memset(lent_[i].data, 0xDD, lent_[i].capacity);
    xtreme_buffer_release(lent_[i].buffer);
    lent_.erase(lent_.begin() + static_cast<ptrdiff_t>(i));
    return;
  }
}

void Player::TakeOne(int ring, const xtreme_completion& completion) {
  if (trace_ && completion.kind != XTREME_PACKET) {
    Note("  ring " + std::to_string(ring) + ": " + Describe(completion));
  } else if (trace_) {
    Note("  ring " + std::to_string(ring) + ": PACKET of " +
         std::to_string(completion.socket.value) + " length " + std::to_string(completion.length));
  }
  if (completion.kind == XTREME_TIMER) {
    Check(completion.deadline_ns <= world_->now_ns(), "a timer is early");
  }
  if (completion.kind == XTREME_FD_EVENT) {
    const std::string wrong = watched_.Take(ring, completion);
    return Check(wrong.empty(), "FD_EVENT of ring " + std::to_string(ring) + " " + wrong);
  }
  model_.Take(ring, completion);
  if (completion.kind == XTREME_TX_DONE) Return(completion);
  if (completion.kind == XTREME_RING && completion.event == XTREME_MOVED) FollowMove(completion);
  if (completion.kind != XTREME_PACKET) return;
  held_.push_back({completion, completion.socket.value});
}

int Player::Take(xtreme_ring ring, std::vector<xtreme_completion>* to, How how) {
  constexpr size_t kSize = sizeof(xtreme_completion);
  const int max = static_cast<int>(to->size());
  switch (how) {
    case How::kPoll: break;
    case How::kByFd: return xtreme_poll_fd(xtreme_ring_fd(ring), to->data(), max, kSize);
    case How::kWait: return xtreme_ring_wait(ring, to->data(), max, kSize, 0);
    case How::kElsewhere: {
      int count = -1;
      std::thread([&] {
        if (xtreme_ring_adopt(ring) == 0) count = xtreme_ring_poll(ring, to->data(), max, kSize);
      }).join();
      return xtreme_ring_adopt(ring) == 0 ? count : -1;
    }
  }
  return xtreme_ring_poll(ring, to->data(), max, kSize);
}

void Player::PollRing(int ring, int max, bool keep, How how) {
  std::vector<xtreme_completion> some(static_cast<size_t>(max));
  memset(static_cast<void*>(some.data()), 0xA5, some.size() * sizeof some[0]);
  const bool was_more = xtreme_ring_more(world_->ring(ring)) != 0;
  const bool readable = Readable(ring);
  const int count = Take(world_->ring(ring), &some, how);
  Check(count >= 0 && count <= max, "poll: " + std::to_string(count));
  if (model_.failed()) return;
  some.resize(static_cast<size_t>(count));
  for (const xtreme_completion& one : some) TakeOne(ring, one);
  CheckWoken(ring, some, readable);
  if (model_.failed()) return;
  for (auto& [handle, socket] : model_.sockets()) {
    if (socket.ring == ring && socket.connected()) CheckOwed(socket);
  }
  TakeAll(some, keep, was_more || xtreme_ring_more(world_->ring(ring)) != 0);
}

// What follows from what the model took.
void Player::TakeAll(const std::vector<xtreme_completion>& some, bool keep, bool was_more) {
  const auto count = [&some](int kind) {
    return std::count_if(some.begin(), some.end(), [kind](const xtreme_completion& one) {
      return one.kind == kind;
    });
  };
  if (!keep) ReleaseLast(static_cast<size_t>(count(XTREME_PACKET)));
  if (!try_again_) return;
  const bool only = count(XTREME_TX_SPACE) == 1 && !was_more;
  for (const xtreme_completion& completion : some) {
    if (completion.kind != XTREME_TX_SPACE) continue;
    world_->Advance(0);  // The device sees each doorbell before the next one is over it.
    TryAgain(*model_.Find(completion.socket.value), only);
  }
}

int Player::RingOf(const xtreme_completion& completion) {
  // The user data is the connection's where it could not be taken.
  const bool of_a_move = completion.kind == XTREME_TERMINATED || completion.kind == XTREME_TX_DONE;
  if (completion.socket.value == 0) {
    return of_a_move ? -1 : static_cast<int>(completion.user_data);
  }
  if (completion.kind == XTREME_ARRIVED) {
    const auto move = model_.moves.find(completion.cookie);
    return move == model_.moves.end() ? -1 : move->second->ring ^ 1;
  }
  const bool accepted = completion.kind == XTREME_ACCEPTED;
  const Socket* const socket =
      model_.Find(accepted ? completion.cookie : completion.socket.value);
  return socket == nullptr ? -1 : socket->ring;
}

void Player::ReleaseLast(size_t count) {
  for (; count > 0; --count) {
    const xtreme_completion packet = held_.back().packet;
    Drop(held_.size() - 1);
    xtreme_release(&packet, 1, sizeof packet);
  }
}

void Player::CheckOwed(Socket& socket) {
  xtreme_tcp_info info = {};
  info.size = sizeof info;
  const int result = xtreme_tcp_get_info(socket.handle, &info);
  Check(result == 0, "get_info: " + std::to_string(result));
  // What waits to be handed out is owed too.
  const bool all = xtreme_ring_more(world_->ring(socket.ring)) == 0;
  if (socket.origin != nullptr) return;
  const bool right = socket.credits ? !all || info.owed_credit <= socket.uncredited
                     : all          ? info.owed_credit == socket.uncredited
                                    : info.owed_credit >= socket.uncredited;
  Check(right, "owed credit of " + std::to_string(socket.handle.value) + " is " +
                   std::to_string(info.owed_credit) + ", should be " +
                   std::to_string(socket.uncredited));
}

void Player::Poll(const Numbers& numbers) {
  static constexpr std::array<int, 4> kMost = {1, 3, 16, 64};
  const uint32_t how = numbers[2] / 2 % 16;
  PollRing(static_cast<int>(numbers[0] % kRings), kMost[numbers[1] / 2 % 4], numbers[2] % 2 == 0,
           how < 3 ? static_cast<How>(1 + how) : How::kPoll);
}

void Player::Advance(const Numbers& numbers) {
  static constexpr std::array<int64_t, 6> kTimes = {1'000,     10'000,     100'000,
                                                    1'000'000, 10'000'000, 250'000'000};
  const uint32_t at = numbers[0] % 32;
  const int64_t time = kTimes[at < 6 ? at : 1 + at % 2];
  world_->Advance(time);
  Note("advance " + std::to_string(time));
}

void Player::Fault(const Numbers& numbers) {
  connectx::Impairment impairment;
  if (numbers[0] % 3 != 0) {
    const auto rate = [](uint32_t number) { return number % 3 == 0 ? 0.1 * (number % 4) : 0.0; };
    impairment.loss = rate(numbers[1]);
    impairment.duplication = rate(numbers[1] >> 8);
    impairment.corruption = rate(numbers[1] >> 16);
    impairment.reordering = rate(numbers[2]);
    impairment.delay_ns = numbers[2] % 5 == 0 ? 50'000 : 0;
    model_.faults = true;
    model_.duplicates |= impairment.duplication > 0;
    model_.corruption |= impairment.corruption > 0;
  }
  world_->Impair(impairment);
}

void Player::UseStale(const Numbers& numbers) {
  std::vector<Socket*> gone;
  for (auto& [handle, socket] : model_.sockets()) {
    if (!socket.open()) gone.push_back(&socket);
  }
  if (gone.empty()) return;
  const Socket& socket = *gone[numbers[0] % gone.size()];
  const char byte = 1;
  const std::string of = " of " + std::to_string(socket.handle.value);
  Check(xtreme_send(socket.handle, &byte, 1, nullptr) == XTREME_REFUSED_STATE, "stale send" + of);
  Check(xtreme_socket_close(socket.handle, 0) == -EBADF, "stale close" + of);
  Check(xtreme_shutdown(socket.handle) == -EBADF, "stale shutdown" + of);
  Check(xtreme_abort(socket.handle) == -EBADF, "stale abort" + of);
  Check(xtreme_credit(socket.handle, 1) == -EBADF, "stale credit" + of);
  Check(xtreme_socket_set_user_data(socket.handle, 1) == -EBADF, "stale user data" + of);
  xtreme_address local;
  Check(xtreme_socket_local(socket.handle, &local) == -EBADF, "stale local" + of);
  xtreme_prepared prepared;
  Check(xtreme_prepare(socket.handle, &byte, 1, &prepared) == -EBADF, "stale prepare" + of);
  xtreme_counter counters[4];
  Check(xtreme_socket_counters(socket.handle, counters, 4) == -EBADF, "stale counters" + of);
}

void Player::LearnAddresses() {
  for (auto& [handle, socket] : model_.sockets()) {
    if (socket.type != Type::kConnection || socket.local.port != 0 || !socket.open()) continue;
    xtreme_tcp_info info = {};
    info.size = sizeof info;
    if (xtreme_tcp_get_info(socket.handle, &info) == 0) socket.local = info.local;
  }
}

bool Player::MayBeRefused(const Socket& socket, int result) const {
  if (resetting_[static_cast<size_t>(socket.ring)] > 0) return true;
  switch (result) {
    case XTREME_REFUSED_SQ_FULL:
    case XTREME_REFUSED_BUFFERS: return true;
    case XTREME_QUEUED:
    case XTREME_REFUSED_NEIGHBOUR:
    case XTREME_REFUSED_ROUTE: return model_.upset;
    default: return result == XTREME_SENT;
  }
}

Player::Method Player::MethodOf(uint32_t kind) {
  struct Choice {
    Method method;
    uint32_t weight;
  };
  static constexpr auto kChoices = std::to_array<Choice>({
      {&Player::OpenUdp, 3},
      {&Player::ConnectUdp, 3},
      {&Player::SendUdp, 14},
      {&Player::SendUdpBuffer, 8},
      {&Player::Listen, 4},
      {&Player::Connect, 6},
      {&Player::SendStream, 24},
      {&Player::SendStreamBuffer, 12},
      {&Player::SendSome, 6},
      {&Player::Shutdown, 1},
      {&Player::Abort, 1},
      {&Player::Close, 3},
      {&Player::Credit, 6},
      {&Player::Release, 20},
      {&Player::ReleaseElsewhere, 1},
      {&Player::Poll, 80},
      {&Player::Advance, 60},
      {&Player::Fault, 1},
      {&Player::Prepare, 4},
      {&Player::UsePrepared, 20},
      {&Player::Join, 3},
      {&Player::SendMany, 4},
      {&Player::SendToGroup, 4},
      {&Player::Move, 1},
      {&Player::Reset, 1},
      {&Player::SendRegistered, 3},
      {&Player::StartTimer, 3},
      {&Player::Reopen, 1},
      {&Player::UseStale, 1},
      {&Player::UseLane, 4},
      {&Player::FireByLane, 5},
      {&Player::UseGroup, 8},
      {&Player::SetRate, 1},
      {&Player::Moderate, 1},
      {&Player::TakeQueues, 1},
      {&Player::Arm, 8},
      {&Player::SetOptions, 1},
      {&Player::ChangeCable, 1},
      {&Player::ChangeRoutes, 1},
      {&Player::Watch, 2},
      {&Player::RingDoorbell, 2},
  });
  uint32_t total = 0;
  for (const Choice& choice : kChoices) total += choice.weight;
  uint32_t at = kind % total;
  const Choice* choice = kChoices.data();
  for (; at >= choice->weight; ++choice) at -= choice->weight;
  return choice->method;
}

bool Player::Play(const Call& call) {
  (this->*MethodOf(call.kind))(call.numbers);
  world_->Settle();
  world_->Advance(0);
  LearnAddresses();
  const std::string punished = world_->Remains();
  Check(punished.empty(), "the device: " + punished);
  return !model_.failed();
}

std::vector<Call> MakeCalls(uint64_t seed, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<Call> calls(count);
  for (Call& call : calls) {
    call.kind = random();
    for (uint32_t& number : call.numbers) number = random();
  }
  return calls;
}

}  // namespace xtreme::model
