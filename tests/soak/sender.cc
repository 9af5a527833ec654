// SPDX-License-Identifier: Apache-2.0

#include "tests/soak/sender.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace xtreme::soak {
namespace {

constexpr int kNoRoom = 1'000;  // No result of a send.
// What a segment takes at any MTU here. What may not wait and is longer may never be taken, when
// the congestion window has become small and nothing else is sent.
constexpr size_t kSegmentBytes = 500;

void NoteFreed(void* freed, void*) { *static_cast<bool*>(freed) = true; }

}  // namespace

Sender::Sender(Ring* ring, int at)
    : ring_(ring), at_(at), memory_(kSlotBytes * kSlots), busy_(kSlots) {
  auto buffer = ring->RegisterMemory(memory_, &NoteFreed, &freed_, kRegistered);
  if (!buffer) {
    fprintf(stderr, "register memory: %s\n", buffer.error().message.c_str());
    abort();
  }
  memory_buffer_ = *std::move(buffer);
}

std::optional<int> Sender::Send(xtreme_socket socket, const xtreme_address* peer, bool datagram,
                                std::span<const uint8_t> bytes, Dice* dice) {
  xtreme_send_options options = {};
  options.flags = XTREME_WANT_DONE;
  if (dice->OneIn(4)) options.flags |= XTREME_NO_DOORBELL;
  options.cookie = static_cast<uint64_t>(at_ + 1) << 32 | (datagram ? kDatagram : 0);
  int result = kNoRoom;
  switch (dice->Below(4)) {
    case 0: result = SendFromPool(socket, peer, bytes, options); break;
    case 1: result = SendFromMemory(socket, peer, bytes, options); break;
    case 2:
      if (peer == nullptr && !bytes.empty() && (datagram || bytes.size() <= kSegmentBytes)) {
        result = SendPrepared(socket, bytes, options);
        break;
      }
      [[fallthrough]];
    default:
      result = peer == nullptr
                   ? xtreme_send(socket, bytes.data(), bytes.size(), &options)
                   : xtreme_send_to(socket, peer, bytes.data(), bytes.size(), &options);
  }
  if (result == kNoRoom) return std::nullopt;
  if (result >= 0) ++due_;
  return result;
}

int Sender::SendFromPool(xtreme_socket socket, const xtreme_address* peer,
                         std::span<const uint8_t> bytes, const xtreme_send_options& options) {
  auto buffer = ring_->AcquireBuffer();
  if (!buffer) return kNoRoom;
  const size_t length = bytes.size();
  if (length > buffer->bytes().size()) return kNoRoom;
  if (length > 0) memcpy(buffer->bytes().data(), bytes.data(), length);
  const int result = xtreme_send_buffer(socket, peer, buffer->buffer(), buffer->bytes().data(),
                                        length, &options);
  if (result >= 0) buffer->Take();
  return result;
}

int Sender::SendFromMemory(xtreme_socket socket, const xtreme_address* peer,
                           std::span<const uint8_t> bytes, xtreme_send_options options) {
  const auto free = std::find(busy_.begin(), busy_.end(), false);
  if (free == busy_.end() || bytes.size() > kSlotBytes) return kNoRoom;
  const auto slot = static_cast<size_t>(free - busy_.begin());
  uint8_t* const at = memory_.data() + slot * kSlotBytes;
  if (!bytes.empty()) memcpy(at, bytes.data(), bytes.size());
  options.cookie |= slot + 1;
  Buffer reference = memory_buffer_.Share();
  const int result =
      xtreme_send_buffer(socket, peer, reference.buffer(), at, bytes.size(), &options);
  if (result >= 0) {
    reference.Take();
    *free = true;
  }
  return result;
}

int Sender::SendPrepared(xtreme_socket socket, std::span<const uint8_t> bytes,
                         const xtreme_send_options& options) {
  const std::vector<uint8_t> blank(bytes.size());
  xtreme_prepared prepared = {};
  if (xtreme_prepare(socket, blank.data(), blank.size(), &prepared) < 0) return kNoRoom;
  int result = xtreme_patch(prepared, 0, bytes.data(), bytes.size());
  if (result == 0) result = xtreme_fire(prepared, &options);
  xtreme_discard(prepared);
  return result;
}

std::string Sender::OnDone(uint64_t cookie, int status) {
  if (due_ == 0) return "a TX_DONE that nobody asked for";
  --due_;
  if (status != 0 && status != ECANCELED) return "TX_DONE says " + std::to_string(status);
  if (status == ECANCELED && (cookie & kDatagram) != 0) ++cancelled_;
  const auto slot = static_cast<uint32_t>(cookie & 0xffff);
  if (slot == 0) return "";
  if (slot > kSlots || !busy_[slot - 1]) return "TX_DONE of memory that was not sent";
  busy_[slot - 1] = false;
  return "";
}

}  // namespace xtreme::soak
