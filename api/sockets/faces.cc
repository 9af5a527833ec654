// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/faces.h"

#include <infiniband/verbs.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "api/native/settings.h"
#include "api/sockets/deferred_listeners.h"
#include "api/sockets/epoll_set.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/log.h"
#include "api/sockets/ring_device.h"
#include "api/sockets/socket.h"
#include "api/sockets/waiting.h"
#include "api/sockets/watch.h"
#include "xtreme/engine/ring.h"

namespace xtreme::sockets {
namespace {

// The whole of it; errno.
int ReadFile(const std::string& path, std::string* text) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return errno;
  std::array<char, 4096> part;
  errno = 0;
  for (size_t got; (got = std::fread(part.data(), 1, part.size(), file)) != 0;) {
    text->append(part.data(), got);
  }
  const int error = std::ferror(file) != 0 ? errno : 0;
  std::fclose(file);
  return error;
}

// As the library is loaded, before the program registers handlers of its own, which may use sockets
// or wait for who does: so ours lock after its have run, and unlock before its run.
[[gnu::constructor(101)]] void HandleForks() {
  pthread_atfork(
      [] {
        if (Faces* const faces = Faces::IfMade()) faces->BeforeFork();
      },
      [] {
        if (Faces* const faces = Faces::IfMade()) faces->AfterFork();
      },
      [] {
        if (Faces* const faces = Faces::IfMade()) faces->Forked();
      });
}

}  // namespace

Faces& Faces::Make() {
  static Faces* const faces = new Faces();
  the_.store(faces, std::memory_order_release);
  return *faces;
}

Faces::Faces() : deferred_(std::make_unique<DeferredListeners>(&setup_)) {
  // Even a library below us may read files by calls that are ours.
  const Passage passage;
  // Whatever the settings say: there are descriptors to keep and to forget until off().
  pid_ = getpid();
  std::vector<std::string> remarks;
  wrong_ = ReadSettings(environ, &settings_, &remarks);
  StartLog(static_cast<LogLevel>(settings_.log_level), settings_.log_file);
  for (const std::string& remark : remarks) Log(LogLevel::kDetails, "{}", remark);
  if (!wrong_.empty()) {
    Log(LogLevel::kError, "{}; nothing is offloaded", wrong_);
    return;
  }
  wrong_ = ReadRules();
  if (!wrong_.empty()) Log(LogLevel::kError, "{}; nothing is offloaded", wrong_);
}

// "" or what is wrong. Without the file that nobody named there are no rules.
std::string Faces::ReadRules() {
  const std::string& path = settings_.config_file;
  std::string text;
  const int error = path.empty() ? 0 : ReadFile(path, &text);
  const bool named = path != FaceSettings().config_file;
  if (error != 0 && (named || error != ENOENT)) return path + ": " + strerror(error);
  const std::string wrong =
      rules_.Append(text, program_invocation_short_name, settings_.application_id);
  return wrong.empty() ? "" : path + ":" + wrong;
}

bool Faces::enabled() {
  std::call_once(begun_, [this] {
    Begin();
    off_ = !enabled_;
  });
  return enabled_.load(std::memory_order_relaxed);
}

void Faces::Begin() {
  if (!wrong_.empty()) return;
  const Passage passage;
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  if (devices != nullptr) ibv_free_device_list(devices);
  if (count == 0) {
    Log(LogLevel::kDebug, "no RDMA device: every socket is the kernel's");
    return;
  }
  enabled_.store(true, std::memory_order_relaxed);
  Log(LogLevel::kInfo, "Xtreme, process {}: {} RDMA device(s), {} rules", getpid(), count,
      rules_.size());
  for (const std::string& line : DescribeSettings(settings_)) Log(LogLevel::kInfo, "{}", line);
  Log(LogLevel::kDetails, "rings: {}", api::Print(settings_.ring));
}

// Of those that the interface has, if it may have no more; else null.
RingDoor* Faces::SharedDoor(const RingKey& key) {
  if (settings_.ring_limit <= 0 || places_.contains(key)) return nullptr;
  std::vector<RingDoor*> there;
  for (const auto& [other, place] : places_) {
    const bool alike = other.interface == key.interface && other.profile == key.profile;
    if (alike && place.door != nullptr) there.push_back(place.door.get());
  }
  if (there.size() < static_cast<size_t>(settings_.ring_limit)) return nullptr;
  return there[key.separator % there.size()];
}

void Faces::Moderate(RingDoor* door) {
  if (settings_.moderation_count == 0 || settings_.moderation_us == 0) return;
  const RingDoor::Entry entry(door);
  const int error = door->device().Moderate(static_cast<uint32_t>(settings_.moderation_count),
                                            static_cast<uint32_t>(settings_.moderation_us));
  if (error != 0) Log(LogLevel::kWarning, "ring on {}: not moderated", door->interface());
}

bool Faces::UseAllocator(const Allocator& allocator) {
  const std::lock_guard lock(setup_);
  if (doors() != nullptr) return false;
  allocator_ = allocator;
  return true;
}

absl::StatusOr<std::unique_ptr<RingDoor>> Faces::TryDoor(const RingKey& key,
                                                         const xtreme_ring_options& ring) {
  const RingProfile* const profile = FindProfile(key.profile);
  return RingDoor::Open(key.interface, {.ring = &ring,
                                        .single = settings_.single_thread,
                                        .profile = profile ? *profile : RingProfile()});
}

void Faces::OpenDoor(const RingKey& key, Place* place) {
  xtreme_ring_options ring = settings_.ring;
  if (allocator_.allocate != nullptr) {
    ring.memory_context = &allocator_;
    ring.memory_allocate = [](void* allocator, size_t bytes) {
      return static_cast<Allocator*>(allocator)->allocate(bytes);
    };
    ring.memory_release = [](void* allocator, void* memory) {
      static_cast<Allocator*>(allocator)->release(memory);
    };
  }
  auto opened = TryDoor(key, ring);
  if (!opened.ok() && allocator_.allocate != nullptr) {
    Log(LogLevel::kWarning, "ring on {}: {}; next without the program's allocator", key.interface,
        std::string(opened.status().message()));
    opened = TryDoor(key, settings_.ring);
  }
  if (opened.ok()) {
    place->door = *std::move(opened);
    place->door->SetOlder(doors());
    newest_door_.store(place->door.get(), std::memory_order_release);
    Moderate(place->door.get());
    descriptors_.Put(place->door->fd(), {.ring = place->door.get()});
  } else {
    place->why = "no ring on " + key.interface + ": " + std::string(opened.status().message());
    // An interface that is no card's is nothing to warn of.
    const bool no_card = absl::IsNotFound(opened.status());
    Log(no_card ? LogLevel::kDetails : LogLevel::kWarning, "{}", place->why);
  }
}

RingDoor* Faces::DoorOf(const RingKey& key, std::string* why) {
  const std::lock_guard lock(setup_);
  if (RingDoor* const shared = SharedDoor(key)) return shared;
  Place& place = places_[key];
  if (place.door == nullptr && place.why.empty()) OpenDoor(key, &place);
  if (place.door == nullptr) *why = place.why;
  if (place.door != nullptr && !progressing_ && settings_.progress_ms > 0 &&
      !settings_.single_thread) {
    progressing_ = true;
    const Passage passage;
    StartProgress();
  }
  return place.door.get();
}

RingDoor* Faces::AnyDoor(RingKey key, std::string* why) {
  *why = "no interface of this host has a ring";
  for (const HostAddress& each : HostAddresses()) {
    if (each.loopback) continue;
    key.interface = each.interface;
    if (RingDoor* door = DoorOf(key, why)) return door;
  }
  return nullptr;
}

uint32_t Faces::AddProfile(const RingProfile& profile) {
  const std::lock_guard lock(setup_);
  uint32_t number = 1;
  for (const RingProfile& each : profiles_) {
    if (each.external == profile.external) return number;
    ++number;
  }
  profiles_.push_back(profile);
  return number;
}

const RingProfile* Faces::FindProfile(uint32_t number) {
  const std::lock_guard lock(setup_);
  return number == 0 || number > profiles_.size() ? nullptr : &profiles_[number - 1];
}

void Faces::SetThreadOffload(pthread_t thread, bool offload) {
  const std::lock_guard lock(setup_);
  thread_offload_[thread] = offload;
}

bool Faces::OffloadsThisThread() {
  const std::lock_guard lock(setup_);
  const auto said = thread_offload_.find(pthread_self());
  return said == thread_offload_.end() ? settings_.offloaded_sockets : said->second;
}

void Faces::CountLeft(const std::string& reason) {
  const std::lock_guard lock(setup_);
  ++left_[reason];
}

std::map<std::string, uint64_t> Faces::left() {
  const std::lock_guard lock(setup_);
  return left_;
}

// Without the program's signals, which are to interrupt its own threads.
void Faces::StartProgress() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] { RunProgress(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Polls rings that nobody polled for an interval: acknowledgements and timers do not wait for the
// program. It never waits for a door, so it disturbs nobody who polls.
void Faces::RunProgress() {
  const timespec pause{.tv_sec = settings_.progress_ms / 1'000,
                       .tv_nsec = settings_.progress_ms % 1'000 * 1'000'000};
  for (;;) {
    nanosleep(&pause, nullptr);
    if (end_asked_.load(std::memory_order_acquire)) {
      EndBelow();
      ended_.store(true, std::memory_order_release);
      return;
    }
    for (RingDoor* door = doors(); door != nullptr; door = door->older()) {
      if (!door->HasProgressed()) door->TryProgress();
    }
  }
}

void Faces::End() {
  if (!enabled_.exchange(false)) return;
  // As the kernel does: what was sent goes on to its peers, and FIN after it.
  descriptors_.ForEach([this](int fd, const Descriptors::Meaning& meaning) {
    if (meaning.socket == nullptr) return;
    descriptors_.CloseWay(fd);  // Nobody is to come to a door that is shut for good.
    meaning.socket->Close();
  });
  for (RingDoor* door = doors(); door != nullptr; door = door->older()) door->CloseForExit([] {});
}

// Other threads are in the middle of anything and must see nothing of it: a door that they come to
// is shut for good.
void Faces::EndBelow() {
  if (!enabled_.exchange(false)) return;
  for (RingDoor* door = doors(); door != nullptr; door = door->older()) {
    door->CloseForExit([this, door] {
      descriptors_.ForEach([door](int, const Descriptors::Meaning& meaning) {
        if (meaning.socket != nullptr) meaning.socket->EndStream(door);
      });
    });
  }
}

void Faces::EndByProgress() {
  if (!enabled_ || !progressing_ || !OwnsDescriptors()) return;
  constexpr int kTries = 1'500;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};
  end_asked_.store(true, std::memory_order_release);
  for (int tries = 0; tries < kTries && !ended_.load(std::memory_order_acquire); ++tries) {
    nanosleep(&kPause, nullptr);
  }
}

void Faces::BeforeFork() {
  setup_.lock();
  descriptors_.ForEach([](int /*fd*/, const Descriptors::Meaning& meaning) {
    if (meaning.epoll != nullptr) meaning.epoll->BeShared();
  });
  for (RingDoor* door = doors(); door != nullptr; door = door->older()) door->BeforeFork();
  descriptors_.LockAll();
  forking_.store(ThreadToken(), std::memory_order_relaxed);
}

void Faces::AfterFork() {
  if (forking_.load(std::memory_order_relaxed) != ThreadToken()) return;
  forking_.store(0, std::memory_order_relaxed);
  descriptors_.UnlockAll();
  for (RingDoor* door = doors(); door != nullptr; door = door->older()) door->AfterFork();
  setup_.unlock();
}

void Faces::Forked() {
  const bool locked = forking_.exchange(0, std::memory_order_relaxed) == ThreadToken();
  if (!locked && OwnsDescriptors()) return;  // Made in the child, by a handler before ours.
  descriptors_.UnlockAll();
  pid_ = getpid();
  Sleeper::AfterFork();
  if (locked) {
    setup_.AfterFork();
  } else {  // Made by a thread that is not here, as this one forked.
    std::construct_at(&setup_, &newest_door_);
  }
  newest_door_.store(nullptr, std::memory_order_relaxed);
  bool had_rings = false;
  for (auto& [key, place] : places_) {
    if (place.door == nullptr) continue;
    had_rings = true;
    // Not destroyed: what it is made of is the parent's.
    RingDoor* const of_parent = place.door.release();
    of_parent->Abandon();
  }
  places_.clear();
  // By a thread that is not here.
  descriptors_.ForEach([this](int fd, const Descriptors::Meaning& meaning) {
    if (meaning.socket != nullptr) meaning.socket->AfterFork();
    if (meaning.epoll != nullptr) meaning.epoll->AfterFork();
    if (meaning.closing) descriptors_.Remove(fd);
  });
  if (!had_rings) return;
  enabled_.store(false, std::memory_order_relaxed);
  off_.store(true, std::memory_order_relaxed);
  descriptors_.ForEach([this](int fd, const Descriptors::Meaning& meaning) {
    if (meaning.socket == nullptr || meaning.socket->path() != Path::kOffloaded) {
      const Descriptors::Meaning before = descriptors_.Remove(fd);
      // Never destroyed: a thread of the parent's may have been in the middle of it.
      if (before.epoll != nullptr) new std::shared_ptr<EpollSet>(before.epoll);
    } else {
      descriptors_.CloseWay(fd);
      meaning.socket->BecomeParents();
    }
  });
}

}  // namespace xtreme::sockets
