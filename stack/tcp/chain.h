// SPDX-License-Identifier: Apache-2.0
//
// Cutting chains of received buffers exactly, without copying. Units: bytes. The thread that owns
// the buffers' pool, and their only holder.
#ifndef XTREME_STACK_TCP_CHAIN_H_
#define XTREME_STACK_TCP_CHAIN_H_

#include <cstdint>

#include "stack/packet/buffer.h"
#include "stack/packet/buffer_pool.h"

namespace xtreme::tcp {

// Takes the first `bytes`, at most all there are, off `head` and releases the links that this
// empties. Returns the new head: null when nothing is left.
inline packet::Buffer* DropFront(packet::Buffer* head, uint32_t bytes) {
  while (head != nullptr && bytes >= head->length) {
    bytes -= head->length;
    packet::Buffer* const next = head->next;
    packet::BufferPool::Release(head);
    head = next;
  }
  if (head != nullptr) {
    head->data += bytes;
    head->length -= bytes;
  }
  return head;
}

// Leaves the first `bytes`, at least 1 and at most all there are, of `head`; releases what follows.
inline void KeepFront(packet::Buffer* head, uint32_t bytes) {
  while (bytes > head->length) {
    bytes -= head->length;
    head = head->next;
  }
  head->length = bytes;
  packet::BufferPool::ReleaseChain(head->next);
  head->next = nullptr;
}

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_CHAIN_H_
