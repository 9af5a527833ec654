// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/received.h"

#include "stack/packet/buffer_pool.h"
#include "stack/wire/frame.h"
#include "xtreme/engine/ip_bytes.h"

namespace xtreme::sockets {
namespace {

wire::Ipv4Address AddressOf(const engine::IpBytes& ip) {
  return wire::Ipv4Address::Load(ip.data() + 12);
}

}  // namespace

wire::Endpoint SourceOf(const packet::Buffer& datagram) {
  return wire::PlainUdpSource(datagram.data);
}

Received ReceivedFrom(const engine::Completion& completion) {
  return {.buffer = completion.buffer,
          .data = completion.data,
          .length = completion.length,
          .interface_index = completion.interface_index,
          .source = SourceOf(completion),
          .destination = {AddressOf(completion.destination_ip), completion.destination_port},
          .hw_time_ns = completion.hw_time_ns,
          .on_ptp = (completion.flags & completion::kPtpTime) != 0};
}

size_t CopyOut(const Received& received, void* to, size_t size) {
  return packet::CopyOut(BytesOf(received), to, size);
}

void PassOver(Received* received, size_t count) {
  received->length -= static_cast<uint32_t>(count);
  for (;;) {
    const packet::Buffer* head = received->buffer;
    const auto there = static_cast<size_t>(head->data + head->length - received->data);
    if (count < there) break;
    count -= there;
    received->buffer = head->next;
    received->data = head->next->data;
  }
  received->data += count;
}

void TakeFront(Received* received, size_t count) {
  received->length -= static_cast<uint32_t>(count);
  while (received->length > 0) {
    const packet::Buffer* head = received->buffer;
    const auto there = static_cast<size_t>(head->data + head->length - received->data);
    if (count < there) {
      received->data += count;
      return;
    }
    count -= there;
    packet::Buffer* next = received->buffer->next;
    packet::BufferPool::Release(received->buffer);
    received->buffer = next;
    received->data = next->data;
  }
  Release(received);
}

void Release(Received* received) {
  packet::BufferPool::ReleaseChain(received->buffer);
  received->buffer = nullptr;
}

}  // namespace xtreme::sockets
