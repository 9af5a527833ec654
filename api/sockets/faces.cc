// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/faces.h"

#include <infiniband/verbs.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "api/sockets/host_addresses.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/log.h"
#include "api/sockets/socket.h"
#include "api/sockets/waiting.h"
#include "xtreme/engine/ring.h"

namespace xtreme::sockets {

Faces& Faces::The() {
  static Faces* const faces = new Faces();
  return *faces;
}

Faces::Faces() {
  // Even a library below us may read files by calls that are ours.
  const Passage passage;
  std::vector<std::string> remarks;
  wrong_ = ReadSettings(environ, &settings_, &remarks);
  StartLog(static_cast<LogLevel>(settings_.log_level), settings_.log_file);
  for (const std::string& remark : remarks) Log(LogLevel::kDetails, "{}", remark);
  if (!wrong_.empty()) {
    Log(LogLevel::kError, "{}; nothing is offloaded", wrong_);
    return;
  }
  std::ifstream file(settings_.config_file);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (std::string wrong = rules_.Append(text, program_invocation_short_name,
                                        settings_.application_id);
      !wrong.empty()) {
    wrong_ = settings_.config_file + ":" + wrong;
    Log(LogLevel::kError, "{}; nothing is offloaded", wrong_);
  }
  pthread_atfork([] { Faces::The().Fork(); }, [] { Faces::The().setup().unlock(); },
                 [] { Faces::The().Forked(); });
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
}

RingDoor* Faces::DoorOf(const std::string& interface, std::string* why) {
  const std::lock_guard<std::recursive_mutex> lock(setup_);
  Place& place = places_[interface];
  if (place.door == nullptr && place.why.empty()) {
    auto opened = RingDoor::Open(settings_.ring, interface, settings_.single_thread);
    if (opened.ok()) {
      place.door = *std::move(opened);
      descriptors_.Put(place.door->fd(), {.ring = place.door.get()});
    } else {
      place.why = "no ring on " + interface + ": " + std::string(opened.status().message());
    }
  }
  if (place.door == nullptr) *why = place.why;
  if (place.door != nullptr && !progressing_ && settings_.progress_ms > 0 &&
      !settings_.single_thread) {
    progressing_ = true;
    const Passage passage;
    std::thread([this] { RunProgress(); }).detach();
  }
  return place.door.get();
}

RingDoor* Faces::AnyDoor(std::string* why) {
  *why = "no interface of this host has a ring";
  for (const HostAddress& each : HostAddresses()) {
    if (each.loopback) continue;
    if (RingDoor* door = DoorOf(each.interface, why)) return door;
  }
  return nullptr;
}

std::vector<RingDoor*> Faces::doors() {
  const std::lock_guard<std::recursive_mutex> lock(setup_);
  std::vector<RingDoor*> all;
  for (const auto& [interface, place] : places_) {
    if (place.door != nullptr) all.push_back(place.door.get());
  }
  return all;
}

void Faces::SetThreadOffload(pthread_t thread, bool offload) {
  const std::lock_guard<std::recursive_mutex> lock(setup_);
  thread_offload_[thread] = offload;
}

bool Faces::OffloadsThisThread() {
  const std::lock_guard<std::recursive_mutex> lock(setup_);
  const auto said = thread_offload_.find(pthread_self());
  return said == thread_offload_.end() ? settings_.offloaded_sockets : said->second;
}

void Faces::CountLeft(const std::string& reason) {
  const std::lock_guard<std::recursive_mutex> lock(setup_);
  ++left_[reason];
}

std::map<std::string, uint64_t> Faces::left() {
  const std::lock_guard<std::recursive_mutex> lock(setup_);
  return left_;
}

// Polls rings that nobody polled for a while: acknowledgements and timers do not wait for the
// program. It never waits for a door, so it disturbs nobody who polls.
void Faces::RunProgress() {
  const int64_t interval_ns = settings_.progress_ms * 1'000'000;
  const timespec pause{.tv_sec = settings_.progress_ms / 1'000,
                       .tv_nsec = settings_.progress_ms % 1'000 * 1'000'000};
  for (;;) {
    nanosleep(&pause, nullptr);
    for (RingDoor* door : doors()) {
      if (SteadyNow().count() - door->last_progress() >= interval_ns) door->TryProgress();
    }
  }
}

void Faces::End() {
  if (!enabled_.exchange(false)) return;
  // As the kernel does: what was sent goes on to its peers, and FIN after it.
  descriptors_.ForEach([](int, const Descriptors::Meaning& meaning) {
    if (meaning.socket != nullptr) meaning.socket->Close();
  });
  for (RingDoor* door : doors()) door->CloseForExit();
}

void Faces::Fork() {
  setup_.lock();
  descriptors_.ForEach([](int, const Descriptors::Meaning& meaning) {
    if (meaning.socket != nullptr) meaning.socket->BecomeShared();
  });
}

void Faces::Forked() {
  // Anew: it is locked by a thread of the parent's, and a recursive mutex knows its owner.
  std::construct_at(&setup_);
  bool had_rings = false;
  for (auto& [interface, place] : places_) {
    if (place.door == nullptr) continue;
    had_rings = true;
    // Not destroyed: what it is made of is the parent's.
    RingDoor* const of_parent = place.door.release();
    of_parent->Abandon();
  }
  places_.clear();
  if (!had_rings) return;
  enabled_.store(false, std::memory_order_relaxed);
  off_.store(true, std::memory_order_relaxed);
  descriptors_.ForEach([this](int fd, const Descriptors::Meaning& meaning) {
    if (meaning.socket == nullptr || meaning.socket->path() != Path::kOffloaded) {
      descriptors_.Remove(fd);
    } else {
      meaning.socket->BecomeParents();
    }
  });
}

}  // namespace xtreme::sockets
