// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/ring_door.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/native/engine_options.h"
#include "api/native/process.h"
#include "api/native/settings.h"
#include "api/sockets/faces.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/log.h"
#include "api/sockets/progress.h"
#include "api/sockets/real_time.h"
#include "api/sockets/ring_device.h"
#include "api/sockets/socket.h"
#include "stack/packet/buffer_pool.h"
#include "stack/udp/demux.h"
#include "xtreme/completion/link_flows.h"
#include "xtreme/completion/ring_event.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/udp.h"

namespace xtreme::sockets {
namespace {

// One by one: `take` may put more behind them.
template <typename Take>
void TakeAll(std::deque<engine::Completion>& waiting, Take take) {
  while (!waiting.empty()) {
    const engine::Completion next = waiting.front();
    waiting.pop_front();
    take(next);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RingDoor>> RingDoor::Open(const std::string& interface,
                                                         const Options& options) {
  const Passage passage;
  xtreme_ring_options asked = *options.ring;
  asked.interface_name = interface.c_str();
  const bool is_backup = asked.backup_interface != nullptr && interface == asked.backup_interface;
  if (is_backup) asked.backup_interface = nullptr;
  const auto handle = api::Process::The().OpenRing(api::EngineOptions(asked));
  if (!handle.ok()) return handle.status();
  std::unique_ptr<RingDoor> door(new RingDoor);
  door->handle_ = *handle;
  door->ring_ = api::Process::The().FindRing(*handle);
  engine::Ring& ring = *door->ring_;
  if (absl::Status started = ring.Start(); !started.ok()) return started;
  door->interface_ = interface;
  door->single_ = options.single;
  door->device_ = std::make_unique<RingDevice>(door.get(), options.profile.external);
  door->fd_ = ring.fd();
  door->ifindex_ = ring.core().device.ifindex;
  ring.core().device.pool->SetContext(door.get());
  Log(LogLevel::kDetails, "ring on {}: {}", interface, ring.description());
  return door;
}

RingDoor::RingDoor() : real_clock_(std::make_unique<RealClock>()) {}

RingDoor::~RingDoor() {
  const Passage passage;
  // Its registrations are of the ring's NIC.
  device_.reset();
  if (handle_ != 0) api::Process::The().CloseRing(handle_);
}

void RingDoor::WaitForLock() {
  const ErrnoKept kept;
  counters_.contended.fetch_add(1, std::memory_order_relaxed);
  OutsideAll others(Faces::The().doors());
  // Whoever is inside this one may be waiting for one of them.
  others.empty() ? lock_.lock() : others.StepIn(this);
}

void RingDoor::Arrive(uintptr_t self, uint32_t depth) {
  inside_.store(self, std::memory_order_relaxed);
  depth_ = depth;
  if (owner_ != self) Adopt(self);
}

RingDoor::OutsideAll::OutsideAll(RingDoor* newest) {
  for (RingDoor* door = newest; door != nullptr; door = door->older()) {
    // Without a handle its ring is closed, and nobody is to come in.
    if (!door->IsInside() || door->handle_ == 0) continue;
    left_.push_back({door, door->StepOut()});
  }
}

// Sleeps for one at a time, and then has no other.
void RingDoor::OutsideAll::StepIn(RingDoor* wanted) {
  if (wanted != nullptr) left_.push_back({wanted, 1});
  RingDoor* next = left_.empty() ? nullptr : left_.back().door;
  while (next != nullptr) {
    RingDoor* const locked = next;
    locked->lock_.lock();
    next = LockOthers(locked);
    if (next != nullptr) locked->lock_.unlock();
  }
  for (const Left& each : left_) each.door->Arrive(ThreadToken(), each.depth);
  left_.clear();
}

// All, and null; or none, and one that another thread has.
RingDoor* RingDoor::OutsideAll::LockOthers(const RingDoor* locked) {
  for (size_t i = 0; i < left_.size(); ++i) {
    RingDoor* const door = left_[i].door;
    if (door == locked || door->lock_.try_lock()) continue;
    while (i-- > 0) {
      if (left_[i].door != locked) left_[i].door->lock_.unlock();
    }
    return door;
  }
  return nullptr;
}

void RingDoor::Adopt(uintptr_t self) {
  owner_ = self;
  ring_->AdoptForATurn();
  ShowOutside();
  if (single_) SetAlone(self);
}

void RingDoor::SetAlone(uintptr_t alone) {
  alone_ = alone;
  for (const auto& [handle, socket] : sockets_) socket->SetAlone();
}

bool RingDoor::IsInside() const {
  return !single_ && inside_.load(std::memory_order_relaxed) == ThreadToken();
}

uint32_t RingDoor::StepOut() {
  const uint32_t depth = std::exchange(depth_, 1);
  Leave();
  return depth;
}

void RingDoor::StepIn(uint32_t depth) {
  Enter(ThreadToken());
  depth_ = depth;
}

void RingDoor::Progress() {
  if (!CatchUp()) return;
  BeginProgress();
  EndProgress(0);
}

// What is polled meanwhile is newer.
void RingDoor::GiveKept() {
  behind_ = Behind::kPolling;
  TakeAll(kept_, [this](const engine::Completion& each) { Give(each); });
  kept_charges_.clear();
  GiveLater();
  behind_ = Behind::kNo;
}

// For nobody of the program's threads.
void RingDoor::ProgressBelow() {
  if (polling()) return;
  BeginProgress();
  GiveAll(0, [this](const engine::Completion& each) { GiveOrKeep(each); });
  FinishProgress();
  if (!kept_.empty()) behind_ = Behind::kKept;
}

void RingDoor::GiveOrKeep(const engine::Completion& completion) {
  const bool of_socket =
      completion.kind != engine::Kind::kOpDone && completion.kind != engine::Kind::kRing;
  Socket* const socket = of_socket ? Find(completion.socket) : nullptr;
  const bool packet = completion.kind == engine::Kind::kPacket;
  const bool keeps = socket != nullptr && (kept_charges_.contains(completion.socket) ||
                                           (packet && socket->HasCallback()));
  if (!keeps) return Give(completion);
  uint32_t& charge = kept_charges_[completion.socket];
  if (packet && !socket->HasRoomFor(completion, &charge)) {
    if (kept_.empty()) kept_charges_.clear();
    return packet::BufferPool::ReleaseChain(completion.buffer);
  }
  kept_.push_back(completion);
}

// By `give`: what was polled, from the `first` on, and all that there is behind it.
template <typename Act>
void RingDoor::GiveAll(uint32_t first, Act give) {
  for (;;) {
    for (uint32_t i = first; i < polled_count_; ++i) give(polled_[i]);
    TakeAll(later_, give);
    if (polled_count_ < kBatch) return;
    BeginProgress();
    first = 0;
  }
}

void RingDoor::GiveFrom(uint32_t first) {
  GiveAll(first, [this](const engine::Completion& each) { Give(each); });
}

void RingDoor::GiveLater() {
  TakeAll(later_, [this](const engine::Completion& each) { Give(each); });
}

void RingDoor::FollowRealTime() {
  const uint64_t ticks = ring_->core().poll_ticks();
  if (!real_clock_->IsFresh(ticks)) real_clock_->Follow(ticks, ring_->TimesAreOnPtp());
}

Socket* RingDoor::LookUp(engine::Handle handle) {
  const auto found = sockets_.find(handle);
  if (found == sockets_.end()) return nullptr;
  found_handle_ = handle;
  found_ = found->second;
  return found_;
}

// While somebody gives what they polled: newer than the rest of it.
void RingDoor::PollForLater() {
  std::array<engine::Completion, kBatch> completions;
  const uint32_t count = ring_->Poll(completions.data(), kBatch, sizeof(engine::Completion));
  for (uint32_t i = 0; i < count; ++i) {
    if (completions[i].kind == engine::Kind::kOpDone) {
      Give(completions[i]);
    } else {
      later_.push_back(completions[i]);
    }
  }
}

void RingDoor::KeepClaim(const wire::Endpoint& local, int claim) {
  if (claim >= 0) claims_.push_back({local, claim});
}

int RingDoor::TakeClaim(const wire::Endpoint& local) {
  const auto kept = std::find_if(claims_.begin(), claims_.end(),
                                 [&](const KeptClaim& each) { return each.local == local; });
  if (kept == claims_.end()) return -1;
  const int claim = kept->claim;
  claims_.erase(kept);
  return claim;
}

// What listeners left, when no connection of theirs can be left either.
void RingDoor::EndClaimsOfNobody() {
  if (ring_->tcp().sockets() == 0) EndClaims();
}

void RingDoor::EndClaims() {
  const Uncancelled whole;
  for (const KeptClaim& each : claims_) Kernel().close(each.claim);
  claims_.clear();
}

void RingDoor::Abandon() { EndClaims(); }

bool RingDoor::TryProgress() {
  if (single_ || !lock_.try_lock()) return false;
  inside_.store(ThreadToken(), std::memory_order_relaxed);
  depth_ = 1;
  owner_ = ThreadToken();
  ring_->AdoptForATurn();
  ProgressBelow();
  progressed_.store(false, std::memory_order_relaxed);
  Leave();
  return true;
}

void RingDoor::CloseForExit(const std::function<void()>& inside_first) {
  const Passage passage;
  constexpr int kTries = 100;
  // Milliseconds that connections have to end in, and neighbours to answer.
  constexpr int kExitTries = 1'000;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};
  bool inside = single_ || lock_.try_lock();
  for (int tries = 0; !inside && tries < kTries; ++tries) {
    nanosleep(&kPause, nullptr);
    inside = lock_.try_lock();
  }
  if (!inside) return;
  inside_.store(ThreadToken());
  depth_ = 1;
  SetAlone(kNobody);
  ring_->AdoptForATurn();
  inside_first();
  const auto is_done = [this] {
    return ring_->tcp().Quiescent() && !ring_->udp().neighbours().HasWaiting();
  };
  for (int tries = 0; tries < kExitTries && !is_done(); ++tries) {
    ProgressBelow();
    nanosleep(&kPause, nullptr);
  }
  device_.reset();
  api::Process::The().CloseRing(std::exchange(handle_, 0));
}

bool RingDoor::Arm() {
  if (behind_ == Behind::kKept) return false;
  const Passage passage;
  return ring_->Arm();
}

engine::Outcome RingDoor::Await(engine::Handle handle, uint64_t cookie) {
  constexpr int kTries = 1'000;
  for (int tries = 0; tries < kTries; ++tries) {
    {
      const Passage passage;
      ring_->core().host.control->RunAndWait([] {});
    }
    polling() ? PollForLater() : Progress();
    const auto found = std::find_if(done_.begin(), done_.end(), [&](const Done& done) {
      return done.handle == handle && done.cookie == cookie;
    });
    if (found == done_.end()) continue;
    engine::Outcome outcome = std::move(found->outcome);
    done_.erase(found);
    return outcome;
  }
  return {ETIMEDOUT, "operation: it did not end"};
}

void RingDoor::Give(const engine::Completion& completion) {
  if (completion.kind == engine::Kind::kOpDone) {
    constexpr size_t kKept = 64;  // Of operations that nobody waits for.
    if (done_.size() >= kKept) done_.erase(done_.begin());
    done_.push_back({completion.socket, completion.cookie,
                     {completion.status, completion.text == nullptr ? "" : completion.text}});
  }
  if (completion.kind == engine::Kind::kRing) {
    const bool stops = completion::Stops(completion.event);
    const bool said = completion.text != nullptr && *completion.text != '\0';
    Log(stops ? LogLevel::kWarning : LogLevel::kDetails, "ring on {}: {}, count {}{}{}", interface_,
        completion::NameOf(completion.event), completion.count, said ? ": " : "",
        said ? completion.text : "");
    return;
  }
  // Of a connection that is new it is the listener that is known.
  Socket* const socket = Find(
      completion.kind == engine::Kind::kAccepted ? completion.cookie : completion.socket);
  if (socket != nullptr) return socket->OnCompletion(completion);
  if (completion.kind == engine::Kind::kAccepted) ring_->tcp().Abort(completion.socket);
  packet::BufferPool::ReleaseChain(completion.buffer);
}

void RingDoor::Register(engine::Handle handle, Socket* socket) {
  sockets_[handle] = socket;
  found_ = nullptr;
  if (completions_ && socket->taker() == Taker::kUndecided) socket->TakeByCompletions();
}

void RingDoor::Forget(engine::Handle handle, Socket* socket) {
  sockets_.erase(handle);
  found_ = nullptr;
  for (Happening& happening : happenings_) {
    if (happening.socket == socket) Release(&happening.packet);
  }
  std::erase_if(happenings_, [=](const Happening& each) { return each.socket == socket; });
}

void RingDoor::BeginCompletions() {
  completions_ = true;
  links_ = std::make_unique<completion::LinkFlows>(
      completion::LinkFlows::Taker{
          .admit = &RingDoor::AdmitLinks,
          .tell_time = [](void* door) { static_cast<RingDoor*>(door)->TellTime(); },
          .context = this},
      ring_->udp().demux().changes_counter());
  ring_->core().SetLinks(links_.get());
  // In a copy: what cannot be told of is forgotten. A connection without a descriptor is told of by
  // its listener, and then what came for it.
  std::vector<Socket*> undecided;
  for (const auto& [handle, socket] : sockets_) {
    if (socket->taker() == Taker::kUndecided && socket->fd() >= 0) undecided.push_back(socket);
  }
  for (Socket* const each : undecided) each->TakeByCompletions();
}

bool RingDoor::AdmitLinks(void* door, const engine::Completion& form,
                          completion::LinkCompletion* link) {
  const Socket* const socket = static_cast<RingDoor*>(door)->Find(form.socket);
  if (socket == nullptr || !socket->HandsOn()) return false;
  *link = {.links = 1,
           .events = kPacketHappened,
           .user_data = socket->user_data,
           .family = AF_INET,
           .port = htons(form.source_port),
           .listen_fd = -1};
  SourceOf(form).address.Store(link->address.data());
  return true;
}

void RingDoor::ForgetLinks() {
  if (links_ == nullptr) return;
  links_->Forget();
  ring_->core().known.Forget();  // Else they would not be learned again.
}

void RingDoor::TellTime() {
  FollowRealTime();
  if (links_ == nullptr) return;
  links_->SetTime({.ticks = real_clock_->asked_ticks(),
                   .good_for_ticks = RealClock::kAgeTicks,
                   .second = real_clock_->second(),
                   .into_second = real_clock_->into_second()});
}

uint32_t RingDoor::Take(Socket* socket, Happening* happenings, uint32_t most) {
  uint32_t count = 0;
  for (auto at = happenings_.begin(); at != happenings_.end() && count < most;) {
    if (socket != nullptr && at->socket != socket) {
      ++at;
      continue;
    }
    happenings[count++] = *at;
    at = happenings_.erase(at);
  }
  return count;
}

}  // namespace xtreme::sockets
