// SPDX-License-Identifier: Apache-2.0
//
// Segments in any order, three bytes of input each, against a map of which bytes arrived: nothing
// is delivered that did not arrive, twice, or in the wrong place; held data is exactly what arrived
// and was not refused; SACK blocks name held data only; limits hold and no buffer is lost. Every
// byte says where in the stream it belongs.
#include <cstdint>
#include <cstdlib>
#include <set>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/reassembler.h"

namespace xtreme::tcp {
namespace {

using packet::Buffer;
using packet::BufferPool;

constexpr uint32_t kPoolBuffers = 64;
constexpr uint32_t kWindow = 96;
constexpr Seq kFirst(0xFFFFFBF0);  // runs begin 1,000 behind it and soon wrap
constexpr ReassemblyStore::Options kOptions{.segments = 24,
                                            .connections = 1,
                                            .buffers_per_connection = 16,
                                            .bytes_per_connection = 80,
                                            .coalesce_after_buffers = 4,
                                            .coalesce_bytes = 12};

void Require(bool holds) {
  if (!holds) std::abort();
}

uint8_t ByteAt(Seq at) { return static_cast<uint8_t>(Distance(kFirst, at) * 37 + 11); }

class Trial {
 public:
  explicit Trial(BufferPool& pool) : pool_(pool) {}

  void Step(const uint8_t* step) {
    const Seq sequence = next_ + step[0] % (kWindow + 16) - 8u;
    const uint32_t length = 1u + step[1] % 40;
    Arrive({.sequence = sequence,
            .length = length,
            .head = Chain(sequence, length, step[2] & 1),
            .stamp = sequence.value()},
           kWindow - (step[2] >> 1) % 8);
    Check();
  }

 private:
  Buffer* Chain(Seq sequence, uint32_t length, bool in_two) {
    const uint32_t first = in_two ? (length + 1) / 2 : length;
    Buffer* const head = Filled(sequence, first);
    if (length > first) head->next = Filled(sequence + first, length - first);
    return head;
  }

  Buffer* Filled(Seq sequence, uint32_t length) {
    Buffer* const buffer = pool_.Acquire();
    Require(buffer != nullptr);
    for (uint32_t i = 0; i < length; ++i) buffer->data[i] = ByteAt(sequence + i);
    buffer->length = length;
    return buffer;
  }

  // What a connection does with a segment.
  void Arrive(Run run, uint32_t window) {
    if (run.sequence > next_) return Hold(run, window);
    if (run.end() > next_) {
      const Seq from = next_;
      next_ = run.end();
      const auto again = reassembler_.Supersede(from, next_);
      Require(!again || HeldAll(*again));
      while (!held_.empty() && Seq(*held_.begin() + kFirst.value()) < next_) {
        held_.erase(held_.begin());
      }
    }
    BufferPool::ReleaseChain(run.head);
    while (const auto taken = reassembler_.Take(next_)) Deliver(*taken);
  }

  void Hold(const Run& run, uint32_t window) {
    const Reassembler::Insertion insertion = reassembler_.Insert(run, next_, window);
    if (insertion.duplicate) Require(HeldAll(*insertion.duplicate));
    if (insertion.result != Reassembler::Result::kHeld) return;
    const Seq right = Earlier(run.end(), next_ + window);
    for (Seq at = run.sequence; at < right; at += 1) held_.insert(Distance(kFirst, at));
    wire::SackBlock blocks[1];
    Require(reassembler_.SackBlocks(std::nullopt, blocks) == 1);
    // RFC 2018 section 4: the first block holds the segment that arrived, and is as long as can be.
    Require(Seq(blocks[0].left) <= run.sequence && Seq(blocks[0].right) >= right);
    Require(!held_.contains(Distance(kFirst, Seq(blocks[0].left) - 1u)));
    Require(!held_.contains(Distance(kFirst, Seq(blocks[0].right))));
  }

  bool HeldAll(const wire::SackBlock& block) const {
    if (block.left == block.right) return false;
    for (Seq at(block.left); at < Seq(block.right); at += 1) {
      if (!held_.contains(Distance(kFirst, at))) return false;
    }
    return true;
  }

  void Deliver(const Run& run) {
    Require(run.sequence == next_);
    Require(packet::ChainLength(run.head) == run.length && run.length > 0);
    Require(Seq(static_cast<uint32_t>(run.stamp)) <= run.sequence);
    Seq at = run.sequence;
    for (const Buffer* link = run.head; link != nullptr; link = link->next) {
      for (const uint8_t byte : link->bytes()) {
        Require(byte == ByteAt(at));
        Require(held_.erase(Distance(kFirst, at)) == 1);
        at += 1;
      }
    }
    next_ = run.end();
    BufferPool::ReleaseChain(run.head);
  }

  void Check() {
    Require(reassembler_.held_bytes() == held_.size());
    Require(reassembler_.empty() == held_.empty());
    Require(reassembler_.held_bytes() <= kOptions.bytes_per_connection);
    Require(reassembler_.held_buffers() <= kOptions.buffers_per_connection);
    Require(reassembler_.held_buffers() + pool_.free_count() == kPoolBuffers);
    wire::SackBlock blocks[wire::kTcpMaxSackBlocks];
    const size_t count = reassembler_.SackBlocks(std::nullopt, blocks);
    Require((count == 0) == held_.empty());
    for (size_t i = 0; i < count; ++i) {
      Require(HeldAll(blocks[i]));
      for (size_t j = 0; j < i; ++j) Require(blocks[i].left != blocks[j].left);
    }
  }

  BufferPool& pool_;
  ReassemblyStore store_{kOptions};
  Reassembler reassembler_{store_};
  Seq next_ = kFirst + 1000u;
  std::set<uint32_t> held_;  // distances from kFirst
};

}  // namespace
}  // namespace xtreme::tcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  static const auto pool = xtreme::packet::BufferPool::Create(
      {.buffers = xtreme::tcp::kPoolBuffers,
       .buffer_bytes = 128,
       .headroom = 32,
       .hugepages = xtreme::packet::BufferPool::Hugepages::kNever});
  if (!pool.ok()) std::abort();
  {
    xtreme::tcp::Trial trial(**pool);
    for (size_t i = 0; i + 3 <= length; i += 3) trial.Step(bytes + i);
  }
  if ((*pool)->free_count() != xtreme::tcp::kPoolBuffers) std::abort();
  return 0;
}
