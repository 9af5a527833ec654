// SPDX-License-Identifier: Apache-2.0
//
// CopyIn: a datagram that is not in a buffer of the pool yet, copied into as many as it takes.
//
// Threads: the pool's owner.

#ifndef XTREME_XTREME_ENGINE_COPY_IN_H_
#define XTREME_XTREME_ENGINE_COPY_IN_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "stack/packet/buffer_pool.h"

namespace xtreme::engine {

// A chain with one reference a link; at least one link. Null when the pool has too few.
inline packet::Buffer* CopyIn(packet::BufferPool* pool, std::span<const uint8_t> payload) {
  packet::Buffer* head = nullptr;
  packet::Buffer** link = &head;
  do {
    packet::Buffer* buffer = pool->Acquire();
    if (buffer == nullptr) {
      packet::BufferPool::ReleaseChain(head);
      return nullptr;
    }
    const size_t length = std::min<size_t>(pool->payload_bytes(), payload.size());
    if (length > 0) memcpy(buffer->data, payload.data(), length);
    buffer->length = static_cast<uint32_t>(length);
    payload = payload.subspan(length);
    *link = buffer;
    link = &buffer->next;
  } while (!payload.empty());
  return head;
}

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_COPY_IN_H_
