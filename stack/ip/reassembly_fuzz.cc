// SPDX-License-Identifier: Apache-2.0
//
// Sequences of fragments, three bytes of input each: whatever comes, the limits hold, no buffer is
// lost, and a datagram that becomes whole has the bytes its fragments brought. Every byte of a
// fragment says where in its datagram it belongs, so a wrong place shows.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "stack/ip/reassembly.h"
#include "stack/packet/buffer_pool.h"
#include "stack/wire/ipv4.h"

namespace xtreme::ip {
namespace {

using packet::Buffer;
using packet::BufferPool;

constexpr uint32_t kPoolBuffers = 16;
constexpr Reassembler::Options kOptions{
    .datagrams = 3, .buffers = 8, .bytes = 512, .timeout = base::Milliseconds(5)};

void Require(bool holds) {
  if (!holds) std::abort();
}

uint8_t ByteAt(size_t offset) { return static_cast<uint8_t>(offset * 13 + 1); }

void CheckAndRelease(ReassembledDatagram& whole) {
  size_t at = 0;
  for (const Buffer* link = whole.head; link != nullptr; link = link->next) {
    for (const uint8_t byte : link->bytes()) Require(byte == ByteAt(at++));
  }
  Require(at == whole.bytes);
  wire::UdpFlow flow;
  OpenReassembledUdp(whole, &flow);
  Require(packet::ChainLength(whole.head) == whole.bytes);
  BufferPool::ReleaseChain(whole.head);
}

class Run {
 public:
  explicit Run(BufferPool& pool) : pool_(pool) {}

  void Fragment(const uint8_t* step) {
    const auto bytes = static_cast<uint16_t>(step[1] & 0x3F);
    const wire::Ipv4Repr repr{.id = static_cast<uint16_t>(step[0] & 0x3),
                              .more_fragments = (step[0] & 0x4) != 0,
                              .fragment_offset_bytes = static_cast<uint16_t>(8 * (step[2] & 0xF)),
                              .payload_bytes = bytes};
    Buffer* frame = pool_.Acquire();
    Require(frame != nullptr);
    frame->length = 20u + bytes;
    repr.Emit(frame->bytes());
    for (size_t i = 0; i < bytes; ++i) {
      frame->data[20 + i] = ByteAt(repr.fragment_offset_bytes + i);
    }
    const auto ip = wire::Ipv4View::Parse(frame->bytes(), wire::ChecksumCheck::kTrusted);
    Require(ip.ok());
    ReassembledDatagram whole;
    if (reassembler_.Add(frame, *ip, 0, now_, &whole) == Reassembler::Result::kWhole) {
      CheckAndRelease(whole);
    }
    now_ += base::Milliseconds(step[0] >> 7);
    Require(reassembler_.held_buffers() <= kOptions.buffers);
    Require(reassembler_.held_bytes() <= kOptions.bytes);
    Require(reassembler_.held_datagrams() <= kOptions.datagrams);
    Require(reassembler_.held_buffers() + pool_.free_count() == kPoolBuffers);
    Require((reassembler_.NextDeadline() == base::kNever) == (reassembler_.held_datagrams() == 0));
  }

 private:
  BufferPool& pool_;
  Reassembler reassembler_{kOptions};
  base::Nanoseconds now_ = base::Seconds(1);
};

}  // namespace
}  // namespace xtreme::ip

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  static const auto pool = xtreme::packet::BufferPool::Create(
      {.buffers = xtreme::ip::kPoolBuffers,
       .buffer_bytes = 128,
       .hugepages = xtreme::packet::BufferPool::Hugepages::kNever});
  if (!pool.ok()) std::abort();
  {
    xtreme::ip::Run run(**pool);
    for (size_t i = 0; i + 3 <= length; i += 3) run.Fragment(bytes + i);
  }
  if ((*pool)->free_count() != xtreme::ip::kPoolBuffers) std::abort();
  return 0;
}
