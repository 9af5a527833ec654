// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/registered_memory.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/mailbox.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_port.h"
#include "xtreme/engine/ring_remains.h"
#include "xtreme/nic/nic.h"

namespace xtreme::engine {
namespace {

// The last reference may have been dropped on another thread: the owner adds up.
class Bell final : public packet::ReturnBell {
 public:
  Bell(std::shared_ptr<Mailbox> mailbox, uint64_t serial)
      : mailbox_(std::move(mailbox)), serial_(serial) {}
  void Ring() override {
    mailbox_->Push(MakeNotice([serial = serial_](engine::Ring& ring) {
      ring.core().registered->DrainReturns(serial);
    }));
  }

 private:
  const std::shared_ptr<Mailbox> mailbox_;
  const uint64_t serial_;
};

}  // namespace

Outcome RegisteredMemory::Register(const MemoryRequest& request, packet::Buffer** buffer) {
  if (request.start == nullptr || request.bytes == 0 || request.bytes > kMaxBytes) {
    return {EINVAL, absl::StrCat("register memory: ", request.bytes, " bytes asked, 1 to ",
                                 kMaxBytes, " possible")};
  }
  auto place = std::ranges::find_if(
      regions_, [](const Region& region) { return region.pool == nullptr; });
  if (place == regions_.end()) {
    if (regions_.size() == kMaxRegions) {
      return {ENOBUFS, absl::StrCat("register memory: ", kMaxRegions, " regions are registered")};
    }
    place = regions_.emplace(regions_.end());
  }
  place->pool = packet::BufferPool::CreateOver(
      request.start, static_cast<uint32_t>(request.bytes), request.released, request.context);
  place->serial = ++serial_;
  place->known = false;
  place->pool->OnReturn(&RegisteredMemory::OnReturned, this);
  place->pool->SetBell(std::make_shared<Bell>(core_->host.mailbox, place->serial));
  *buffer = place->pool->Acquire();
  (*buffer)->length = static_cast<uint32_t>(request.bytes);
  packet::BufferPool::Lend(*buffer, place->serial);
  StartRegistering(*place, request);
  return {};
}

void RegisteredMemory::StartRegistering(const Region& region, const MemoryRequest& request) {
  std::vector<nic::Nic*> nics;
  const RingPorts& ports = *core_->ports;
  for (const RingPort& port : ports.all) {
    // The ring never goes to one that was removed, which may register nothing any more.
    const bool never = port.link.removed() && &port != &ports.current();
    nics.push_back(never ? nullptr : port.nic);
  }
  const std::span bytes(static_cast<uint8_t*>(request.start), request.bytes);
  core_->Start(MakeOperation([nics, bytes, serial = region.serial, cookie = request.cookie,
                              side = core_->host.control_side, mailbox = core_->host.mailbox] {
    const absl::StatusOr<Keys> keys = RegisterWith(nics, *side, serial, bytes);
    mailbox->Push(MakeNotice([keys, serial, cookie, outcome = OutcomeOf(keys.status())](
                                 Ring& ring) {
      Region* const told = ring.core().registered->Find(serial);
      if (told != nullptr && keys.ok()) {
        told->known = true;
        told->keys = *keys;
      }
      Completion* done = ring.core().Emit(Kind::kOpDone);
      done->status = outcome.error;
      done->cookie = cookie;
      // The notice that brought it lives until it was handed out.
      done->text = outcome.ok() ? nullptr : outcome.text.c_str();
    }));
  }));
}

absl::StatusOr<RegisteredMemory::Keys> RegisteredMemory::RegisterWith(
    const std::vector<nic::Nic*>& nics, ControlSide& side, uint64_t serial,
    std::span<uint8_t> bytes) {
  Keys keys{};
  std::vector<std::unique_ptr<nic::Registration>> made;
  for (size_t i = 0; i < nics.size(); ++i) {
    if (nics[i] == nullptr) continue;
    auto registration = nics[i]->Register(bytes.data(), bytes.size());
    if (!registration.ok()) return registration.status();
    keys[i] = (*registration)->key();
    made.push_back(*std::move(registration));
  }
  side.registrations[serial] = std::move(made);
  return keys;
}

// Nobody refers to it any more. The NIC lets go of it, and then it is released.
void RegisteredMemory::OnReturned(void* self, uint64_t serial) {
  RegisteredMemory& memory = *static_cast<RegisteredMemory*>(self);
  Region* const region = memory.Find(serial);
  region->known = false;
  RingCore& core = *memory.core_;
  core.Start(MakeOperation(
      [serial, side = core.host.control_side, mailbox = core.host.mailbox] {
        side->registrations.erase(serial);
        mailbox->Push(MakeNotice([serial](Ring& ring) {
          ring.core().registered->Find(serial)->pool.reset();
        }));
      }));
}

void RegisteredMemory::DrainReturns(uint64_t serial) {
  Region* const region = Find(serial);
  if (region != nullptr) region->pool->DrainReturns();
}

RegisteredMemory::Region* RegisteredMemory::Find(uint64_t serial) {
  const auto found = std::ranges::find_if(regions_, [serial](const Region& region) {
    return region.pool != nullptr && region.serial == serial;
  });
  return found == regions_.end() ? nullptr : &*found;
}

uint32_t RegisteredMemory::NumberOf(const Payload& payload) const {
  for (size_t i = 0; i < regions_.size(); ++i) {
    const Region& region = regions_[i];
    if (region.pool.get() != payload.buffer->pool || !region.known) continue;
    const auto at = static_cast<size_t>(payload.data - region.pool->region());
    const bool inside = payload.data >= region.pool->region() &&
                        at <= region.pool->region_bytes() &&
                        payload.length <= region.pool->region_bytes() - at;
    return inside ? static_cast<uint32_t>(i + 1) : 0;
  }
  return 0;
}

uint32_t RegisteredMemory::Key(uint32_t number) const {
  return regions_[number - 1].keys[core_->ports->in_use];
}

uint32_t RegisteredMemory::KeyOf(const packet::BufferPool* pool) const {
  const auto found = std::ranges::find(regions_, pool, [](const Region& region) {
    return static_cast<const packet::BufferPool*>(region.pool.get());
  });
  return found->keys[core_->ports->in_use];
}

void RegisteredMemory::Adopt() {
  for (Region& region : regions_) {
    if (region.pool != nullptr) region.pool->Adopt();
  }
}

void RegisteredMemory::Bury(RingRemains* remains) {
  for (Region& region : regions_) {
    if (region.pool == nullptr) continue;
    region.pool->OnReturn(nullptr, nullptr);
    remains->sending.push_back(region.pool->Hold());
  }
}

}  // namespace xtreme::engine
