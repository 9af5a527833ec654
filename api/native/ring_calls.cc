// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: version, errors, addresses, options, rings and groups.

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "api/native/address.h"
#include "api/native/calls.h"
#include "api/native/engine_options.h"
#include "api/native/settings.h"
#include "api/native/sized.h"
#include "fmt/format.h"
#include "stack/wire/address_text.h"
#include "xtreme/engine/ring_group.h"
#include "xtreme/engine/tcp.h"

namespace xtreme::api {
namespace {

bool FitsPoll(const void* completions, int max, size_t completion_size) {
  return completions != nullptr && max >= 1 && completion_size >= kLeastCompletionBytes;
}

int RefusePoll(int max, size_t completion_size) {
  return Fail(EINVAL, fmt::format("poll: {} completions of {} bytes asked, at least 1 of {} "
                                  "possible",
                                  max, completion_size, kLeastCompletionBytes));
}

}  // namespace
}  // namespace xtreme::api

using xtreme::api::Fail;
using xtreme::api::FindRing;
using xtreme::api::MayTouch;
using xtreme::api::Process;

const char* xtreme_version(void) { return "0.1.0"; }

const char* xtreme_error(void) { return xtreme::api::LastFailure(); }

int xtreme_address_parse(const char* text, xtreme_address* address) {
  if (text == nullptr) return Fail(EINVAL, "address: no text");
  xtreme::wire::Endpoint endpoint;
  switch (xtreme::api::ParseEndpoint(text, &endpoint)) {
    case xtreme::api::ParseVerdict::kOk: break;
    case xtreme::api::ParseVerdict::kMalformed:
      return Fail(EINVAL, fmt::format("address: '{}' asked, a.b.c.d:port possible", text));
    case xtreme::api::ParseVerdict::kIpv6:
      return Fail(EAFNOSUPPORT, fmt::format("address: '{}' asked, IPv4 only", text));
  }
  *address = xtreme::api::FromEndpoint(endpoint);
  return 0;
}

int xtreme_address_format(const xtreme_address* address, char* text, size_t size) {
  const auto endpoint = xtreme::api::ToEndpoint(*address);
  return xtreme::api::CopyText(endpoint ? xtreme::wire::ToString(*endpoint) : "(not IPv4)", text,
                               size);
}

// --- Options -----------------------------------------------------------------------------------

int xtreme_ring_options_init(xtreme_ring_options* options, size_t size, const char* profile) {
  const int never =
      xtreme::api::CheckSize("ring options", size, xtreme::api::kFirstRingOptions);
  if (never != 0) return never;
  if (profile == nullptr) return Fail(EINVAL, "profile: none is named");
  xtreme_ring_options filled = {};
  std::string wrong = xtreme::api::FillProfile(profile, &filled);
  if (!wrong.empty()) return Fail(EINVAL, std::move(wrong));
  xtreme::api::GiveSized(filled, options, size);
  return 0;
}

int xtreme_ring_options_set(xtreme_ring_options* options, const char* name, const char* value) {
  if (name == nullptr) return Fail(EINVAL, "setting: none is named");
  std::string wrong = xtreme::api::Set(name, value, options);
  return wrong.empty() ? 0 : Fail(EINVAL, std::move(wrong));
}

int xtreme_ring_options_from_environment(xtreme_ring_options* options, char** environment) {
  const size_t size = options->size;
  xtreme_ring_options all;
  const int taken =
      xtreme::api::TakeSized("ring options", options, xtreme::api::kFirstRingOptions, &all);
  if (taken != 0) return taken;
  all.size = size;
  std::string wrong = xtreme::api::SetFromEnvironment(environment, &all);
  if (!wrong.empty()) return Fail(EINVAL, std::move(wrong));
  xtreme::api::GiveSized(all, options, size);
  return 0;
}

int xtreme_ring_options_print(const xtreme_ring_options* options, char* text, size_t size) {
  return xtreme::api::CopyText(xtreme::api::Print(*options), text, size);
}

// --- Rings -------------------------------------------------------------------------------------

int xtreme_ring_open(const xtreme_ring_options* options, xtreme_ring* ring) {
  xtreme_ring_options asked;
  const int taken =
      xtreme::api::TakeSized("open ring", options, xtreme::api::kFirstRingOptions, &asked);
  if (taken != 0) return taken;
  const int unknown =
      xtreme::api::CheckReserved("open ring", asked.reserved, asked.reserved_too);
  if (unknown != 0) return unknown;
  if (asked.interface_name == nullptr || asked.interface_name[0] == 0) {
    return Fail(EINVAL, "open ring: no interface is named");
  }
  std::string wrong = xtreme::api::Check(asked);
  if (!wrong.empty()) return Fail(EINVAL, std::move(wrong));
  const auto opened = Process::The().OpenRing(xtreme::api::EngineOptions(asked));
  if (!opened.ok()) return Fail(opened.status());
  Process::The().ResetAtExit(*opened);
  ring->value = *opened;
  return 0;
}

int xtreme_ring_start(xtreme_ring ring) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  const absl::Status started = found->Start();
  if (absl::IsFailedPrecondition(started)) return Fail(EALREADY, std::string(started.message()));
  return started.ok() ? 0 : Fail(started);
}

int xtreme_ring_close(xtreme_ring ring) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  switch (Process::The().CloseRing(ring.value)) {
    case 0: return 0;
    case EBUSY: return Fail(EBUSY, "close ring: it is in a group, to be closed first");
    default: return xtreme::api::NoSuch("ring");
  }
}

int xtreme_ring_reset(xtreme_ring ring, uint64_t cookie) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  xtreme::engine::Outcome outcome = found->Reset(cookie);
  return outcome.ok() ? 0 : Fail(outcome.error, std::move(outcome.text));
}

int xtreme_ring_adopt(xtreme_ring ring) {
  xtreme::engine::Ring* found = FindRing(ring.value);
  if (found == nullptr) return -EBADF;
  found->Adopt();
  return 0;
}

int xtreme_ring_poll(xtreme_ring ring, xtreme_completion* completions, int max,
                     size_t completion_size) {
  xtreme::engine::Ring* found = FindRing(ring.value);
  if (found == nullptr) [[unlikely]] return -EBADF;
  if (!xtreme::api::FitsPoll(completions, max, completion_size)) [[unlikely]] {
    return xtreme::api::RefusePoll(max, completion_size);
  }
  if (!MayTouch(*found)) return xtreme::api::NotOwner();
  return static_cast<int>(found->Poll(completions, static_cast<uint32_t>(max), completion_size));
}

int xtreme_ring_more(xtreme_ring ring) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  return found->More();
}

int xtreme_ring_arm(xtreme_ring ring) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  return found->Arm() ? 0 : 1;
}

int xtreme_ring_wait(xtreme_ring ring, xtreme_completion* completions, int max,
                     size_t completion_size, int64_t timeout_ns) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  if (!xtreme::api::FitsPoll(completions, max, completion_size)) {
    return xtreme::api::RefusePoll(max, completion_size);
  }
  const auto timeout =
      timeout_ns < 0 ? xtreme::base::kNever : xtreme::base::Nanoseconds(timeout_ns);
  const int count =
      found->Wait(completions, static_cast<uint32_t>(max), completion_size, timeout);
  return count >= 0 ? count : Fail(-count, "wait: a signal came");
}

int xtreme_ring_fd(xtreme_ring ring) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  return found->fd();
}

int xtreme_poll_fd(int fd, xtreme_completion* completions, int max, size_t completion_size) {
  const Process::Polled polled = Process::The().FindByFd(fd);
  if (!xtreme::api::FitsPoll(completions, max, completion_size)) {
    return xtreme::api::RefusePoll(max, completion_size);
  }
  const auto room = static_cast<uint32_t>(max);
  if (polled.ring != nullptr) {
    if (!MayTouch(*polled.ring)) return xtreme::api::NotOwner();
    return static_cast<int>(polled.ring->Poll(completions, room, completion_size));
  }
  if (polled.group != nullptr) {
    if (!MayTouch(*polled.group)) return xtreme::api::NotOwner();
    return static_cast<int>(polled.group->Poll(completions, room, completion_size));
  }
  return Fail(EBADF, fmt::format("poll: fd {} is not a ring's or group's", fd));
}

int xtreme_ring_flush(xtreme_ring ring) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  found->Flush();
  return 0;
}

int xtreme_ring_quiescent(xtreme_ring ring) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  return found->tcp().Quiescent() ? 1 : 0;
}

int64_t xtreme_ring_now(xtreme_ring ring) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  return found->Now().count();
}

int64_t xtreme_ring_clock_error(xtreme_ring ring) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  return found->ClockError().count();
}

int xtreme_ring_describe(xtreme_ring ring, char* text, size_t size) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  return xtreme::api::CopyText(found->description(), text, size);
}

int xtreme_ring_wake(xtreme_ring ring) {
  return Process::The().WakeRing(ring.value) ? 0 : xtreme::api::NoSuch("ring");
}

// --- Groups ------------------------------------------------------------------------------------

int xtreme_group_open(const xtreme_ring* rings, int count, xtreme_group* group) {
  if (count < 1) return Fail(EINVAL, fmt::format("open group: {} rings asked, at least 1", count));
  std::vector<xtreme::engine::Ring*> members;
  std::vector<uint16_t> numbers;
  for (int i = 0; i < count; ++i) {
    members.emplace_back();
    if (const int failed = xtreme::api::Reach(rings[i].value, &members.back())) return failed;
    numbers.push_back(xtreme::api::NumberOf(rings[i].value));
  }
  const auto opened = Process::The().OpenGroup(members, std::move(numbers));
  if (absl::IsFailedPrecondition(opened.status())) {
    return Fail(EBUSY, std::string(opened.status().message()));
  }
  if (!opened.ok()) return Fail(opened.status());
  if (*opened == 0) return Fail(EMFILE, "open group: 65535 groups are open");
  group->value = *opened;
  return 0;
}

int xtreme_group_close(xtreme_group group) {
  const xtreme::engine::RingGroup* found = Process::The().FindGroup(group.value);
  if (found != nullptr && !MayTouch(*found)) return xtreme::api::NotOwner();
  return Process::The().CloseGroup(group.value) ? 0 : xtreme::api::NoSuch("group");
}

int xtreme_group_set_order(xtreme_group group, int order) {
  using Order = xtreme::engine::RingGroup::Order;
  xtreme::engine::RingGroup* found = Process::The().FindGroup(group.value);
  if (found == nullptr) return xtreme::api::NoSuch("group");
  if (!MayTouch(*found)) return xtreme::api::NotOwner();
  if (order != XTREME_GROUP_FAIR && order != XTREME_GROUP_HARDWARE_TIME) {
    return Fail(EINVAL, fmt::format("order of a group: {} asked, 0 or 1 possible", order));
  }
  found->SetOrder(order == XTREME_GROUP_FAIR ? Order::kFair : Order::kHardwareTime);
  return 0;
}

int xtreme_group_poll(xtreme_group group, xtreme_completion* completions, int max,
                      size_t completion_size) {
  xtreme::engine::RingGroup* found = Process::The().FindGroup(group.value);
  if (found == nullptr) return xtreme::api::NoSuch("group");
  if (!MayTouch(*found)) return xtreme::api::NotOwner();
  if (!xtreme::api::FitsPoll(completions, max, completion_size)) {
    return xtreme::api::RefusePoll(max, completion_size);
  }
  return static_cast<int>(found->Poll(completions, static_cast<uint32_t>(max), completion_size));
}

int xtreme_group_arm(xtreme_group group) {
  xtreme::engine::RingGroup* found = Process::The().FindGroup(group.value);
  if (found == nullptr) return xtreme::api::NoSuch("group");
  if (!MayTouch(*found)) return xtreme::api::NotOwner();
  return found->Arm() ? 0 : 1;
}

int xtreme_group_fd(xtreme_group group) {
  xtreme::engine::RingGroup* found = Process::The().FindGroup(group.value);
  if (found == nullptr) return xtreme::api::NoSuch("group");
  return MayTouch(*found) ? found->fd() : xtreme::api::NotOwner();
}
