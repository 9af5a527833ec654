// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/prepared_sends.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/keep_sent.h"
#include "xtreme/engine/ring_core.h"

namespace xtreme::engine {
namespace {

Outcome NoSuch(const char* action) {
  return {EBADF, absl::StrCat(action, ": no such prepared send")};
}

// What a refusal is called where only a status can be told.
int ErrnoOf(SendResult refusal) {
  switch (refusal) {
    case SendResult::kRefusedNeighbour: return EHOSTUNREACH;
    case SendResult::kRefusedSqFull: return EAGAIN;
    case SendResult::kRefusedBuffers: return ENOBUFS;
    case SendResult::kRefusedSize: return EMSGSIZE;
    case SendResult::kRefusedRoute: return ENETUNREACH;
    case SendResult::kRefusedState: return ECANCELED;
    default: return EAGAIN;
  }
}

}  // namespace

PreparedSends::~PreparedSends() = default;

Outcome PreparedSends::Prepare(PreparedOwner* owner, Handle socket,
                               std::span<const uint8_t> payload, Handle* handle) {
  if (table_ == nullptr) {
    table_ = std::make_unique<HandleTable<Place>>(core_->options.number, kMost);
  }
  Place* const place = table_->Take();
  if (place == nullptr) {
    return {ENOBUFS, absl::StrCat("prepare: ", kMost, " sends are prepared")};
  }
  *handle = place->handle;
  std::unique_ptr<PreparedSend>& prepared = place->send;
  prepared = std::make_unique<PreparedSend>();
  prepared->core = core_;
  prepared->owner = owner;
  prepared->socket = socket;
  prepared->handle = *handle;
  prepared->payload.assign(payload.begin(), payload.end());
  prepared->more = CountPair{1, payload.size()};
  prepared->armed_for = PreparedSend::kLongWay;
  prepared->fire = &FirePlain;
  Build(*prepared);
  return {};
}

PreparedSend* PreparedSends::Find(Handle handle) const {
  const Place* const place = table_ == nullptr ? nullptr : table_->Find(handle);
  return place == nullptr ? nullptr : place->send.get();
}

Outcome PreparedSends::Patch(Handle handle, size_t at, std::span<const uint8_t> bytes) {
  core_->CheckOwner();
  PreparedSend* prepared = Find(handle);
  if (prepared == nullptr) return NoSuch("patch");
  std::vector<uint8_t>& payload = prepared->payload;
  if (at > payload.size() || bytes.size() > payload.size() - at) {
    return {EINVAL, absl::StrCat("patch: ", bytes.size(), " bytes at ", at,
                                 " asked, the payload has ", payload.size())};
  }
  if (bytes.empty()) return {};  // Which may be at null, as a payload of none is.
  std::memcpy(payload.data() + at, bytes.data(), bytes.size());
  if (prepared->frame.frame_bytes() != 0) {
    std::memcpy(prepared->frame.payload() + at, bytes.data(), bytes.size());
  }
  if (prepared->kept != nullptr) {
    std::memcpy(prepared->kept->data + at, bytes.data(), bytes.size());
  }
  return {};
}

// Where it can be sent at once, firing will not have to look; where it is kept, only Fire() has to
// leave it to others.
void PreparedSends::Build(PreparedSend& prepared) {
  const uint64_t now = core_->host.routes_version;
  if (prepared.built_for != now) prepared.owner->BuildPrepared(prepared);
  if (!prepared.constant || !prepared.armed()) return;
  prepared.uncounted = true;
  if (prepared.built_for != now) return;
  nic::QueuePair& queue = *core_->device.queue;
  prepared.armed_for = nic::TxFront::EpochOf(now);
  if (queue.MayKeep(prepared.frame)) {
    prepared.front = nic::QueuePair::NoFront();
    prepared.tapped = queue.sent_tap().front;
    prepared.fire = prepared.frame.direct_blocks == 3 ? &FireKept<3> : &FireKept<2>;
    return;
  }
  prepared.front = queue.FrontFor(prepared.frame);
  prepared.fire = &FireConstant;
}

[[gnu::noinline]] SendResult PreparedSends::FirePlain(PreparedSend& prepared) {
  return prepared.core->prepared->FireOtherwise(prepared, {});
}

SendResult PreparedSends::FireConstant(PreparedSend& prepared) {
  const RingCore& core = *prepared.core;
  if (!prepared.armed() || prepared.built_for != core.host.routes_version) [[unlikely]] {
    return FirePlain(prepared);
  }
  // More is due with this post, or the queue takes all by a call.
  const nic::TxStatus status = core.device.queue->PostPrepared(prepared.frame, 0);
  if (status != nic::TxStatus::kPosted) [[unlikely]] return FirePlain(prepared);
  prepared.armed_for = PreparedSend::kNotArmed;
  return SendResult::kSent;
}

template <uint32_t kBlocks>
SendResult PreparedSends::FireKept(PreparedSend& prepared) {
  if (!prepared.tapped->ReadyIn(prepared.armed_for)) [[unlikely]] return FireConstant(prepared);
  nic::PostReady<kBlocks>(*prepared.tapped, prepared.frame, nic::Unedited(),
                          KeepSent(*prepared.core->device.queue));
  prepared.armed_for = PreparedSend::kNotArmed;
  return SendResult::kSent;
}

SendResult PreparedSends::FireOtherwise(PreparedSend& prepared, const SendOptions& options) {
  if (!prepared.armed()) {
    return prepared.owner->RefusePrepared(prepared, SendResult::kRefusedState);
  }
  Build(prepared);
  const SendResult result = prepared.owner->PostPrepared(prepared, options);
  // Refused, it may be fired again; a warm one never left.
  const bool left = result == SendResult::kSent && (options.flags & kWarm) == 0;
  if (left) {  // Its owner has counted it.
    prepared.armed_for = PreparedSend::kNotArmed;
    prepared.uncounted = false;
  }
  return result;
}

bool PreparedSends::EndIsTold(Handle socket) const {
  bool told = false;
  core_->fifo.ForEachWaiting([&](const Completion* waits) {
    told |= waits->kind == Kind::kTerminated && waits->socket == socket;
  });
  return told;
}

void PreparedSends::FireFor(Handle handle, const SendOptions& options) {
  PreparedSend* prepared = Find(handle);
  SendResult result = SendResult::kRefusedState;
  if (prepared != nullptr) {
    result = Fire(*prepared, options);
  } else {
    core_->tally.refusals.Count(RefusalOf(result));
  }
  if (result == SendResult::kSent) return;
  // Behind its socket's last completion nothing of that is handed out.
  if (prepared != nullptr && EndIsTold(prepared->socket)) prepared = nullptr;
  Completion completion = core_->Draft(Kind::kError);
  completion.status = prepared == nullptr ? EBADF : ErrnoOf(result);
  completion.socket = prepared == nullptr ? 0 : prepared->socket;
  completion.cookie = options.cookie;
  // It may be written where it is read: then nothing looks at it as it is handed out.
  const auto tell = [&] {
    if (prepared == nullptr || prepared->owner->Resolve(&completion)) core_->Tell(completion);
  };
  tell();
  if ((options.flags & kSendWantDone) == 0) return;
  completion.kind = Kind::kTxDone;
  completion.status = ECANCELED;
  tell();
}

Outcome PreparedSends::Cancel(Handle handle) {
  core_->CheckOwner();
  PreparedSend* prepared = Find(handle);
  if (prepared == nullptr) return NoSuch("cancel");
  prepared->Disarm();
  return {};
}

Outcome PreparedSends::Rearm(Handle handle) {
  core_->CheckOwner();
  PreparedSend* prepared = Find(handle);
  if (prepared == nullptr) return NoSuch("rearm");
  prepared->Settle();
  prepared->armed_for = PreparedSend::kLongWay;
  Build(*prepared);
  return {};
}

Outcome PreparedSends::Discard(Handle handle) {
  core_->CheckOwner();
  PreparedSend* prepared = Find(handle);
  if (prepared == nullptr) return NoSuch("discard");
  prepared->Settle();
  if (prepared->kept != nullptr) packet::BufferPool::ReleaseByOwner(prepared->kept);
  table_->At(PlaceOf(handle))->send.reset();
  table_->Free(handle);
  return {};
}

template <typename Act>
void PreparedSends::ForEach(Act act) {
  if (table_ == nullptr) return;
  table_->ForEach([&](Place& place) { act(*place.send); });
}

template <typename Act>
void PreparedSends::ForEachOf(Handle socket, Act act) {
  ForEach([&](PreparedSend& prepared) {
    if (prepared.socket == socket) act(prepared);
  });
}

bool PreparedSends::AnyOf(Handle socket) {
  bool any = false;
  ForEachOf(socket, [&any](PreparedSend&) { any = true; });
  return any;
}

void PreparedSends::DiscardOf(Handle socket) {
  ForEachOf(socket, [this](PreparedSend& prepared) { Discard(prepared.handle); });
}

void PreparedSends::BuildOf(Handle socket) {
  ForEachOf(socket, [this](PreparedSend& prepared) { Build(prepared); });
}

void PreparedSends::Settle() {
  ForEach([](PreparedSend& prepared) { prepared.Settle(); });
}

void PreparedSends::Outdate(PreparedSend& prepared) {
  prepared.built_for = PreparedSend::kNotBuilt;
  if (prepared.armed()) prepared.armed_for = PreparedSend::kLongWay;
}

void PreparedSends::Outdate(Handle socket) {
  ForEachOf(socket, [](PreparedSend& prepared) { Outdate(prepared); });
}

void PreparedSends::OutdateAll() {
  ForEach([](PreparedSend& prepared) { Outdate(prepared); });
}

void PreparedSends::LeaveQueue() {
  ForEach([](PreparedSend& prepared) {
    prepared.front = prepared.tapped = nic::QueuePair::NoFront();
    Outdate(prepared);
  });
}

}  // namespace xtreme::engine
