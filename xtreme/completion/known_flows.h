// SPDX-License-Identifier: Apache-2.0
//
// KnownFlows: the flows that received last, each with the form of its datagrams' completions, so
// that a driver writes them where the application reads, straight from what the device wrote.
//
// Invariant: an entry stands only while the demultiplexer would give the same single socket and
// count nothing else: Follow() forgets all of them when it has changed. A flow not found here is
// not unknown: ask the demultiplexer. Plain untagged frames only: no IP options, no fragments.
// Byte order: keys as in the frame. Threads: the ring's owner. Never allocates.

#ifndef XTREME_XTREME_COMPLETION_KNOWN_FLOWS_H_
#define XTREME_XTREME_COMPLETION_KNOWN_FLOWS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "xtreme/completion/completion.h"

namespace xtreme::udp {
class Endpoint;
}

namespace xtreme::completion {

class LinkFlows;

// From a raw value of the device's clock to nanoseconds: base_ns and the upper half of
// (raw - base_raw) << shift times multiplier.
struct ClockScale {
  uint64_t base_raw = 0;
  int64_t base_ns = 0;
  int64_t multiplier = 0;
  int shift = 0;

  // base_ns + (raw - base_raw) x ns_per_tick_q32 / 2^32; `unused_bits` are those of a raw value
  // above its valid ones.
  static ClockScale Of(uint64_t base_raw, int64_t base_ns, int64_t ns_per_tick_q32,
                       int unused_bits);
  // Of a clock that nothing is known of: every time is 0.
  bool IsNone() const { return base_ns == 0 && multiplier == 0; }

  int64_t ToNanoseconds(uint64_t raw) const {
    const auto ticks = static_cast<int64_t>((raw - base_raw) << shift);
    return base_ns + static_cast<int64_t>((static_cast<__int128>(ticks) * multiplier) >> 64);
  }
};

class KnownFlows {
  struct Entry;

 public:
  using Out = Completion;

  // `changes`: moves on whenever what the demultiplexer would say does; outlives this.
  void Watch(const uint64_t* changes) {
    changes_ = changes;
    Forget();
  }
  // Before each use, once a poll; where there is nothing to follow it does nothing.
  void Follow() {
    if (IsBehind()) [[unlikely]] Forget();
  }
  bool IsBehind() const { return *changes_ != followed_; }
  void Forget();
  // Whether any flow is known, or somebody knows others.
  bool any() const { return any_ || others_.take != &NoneTakes; }

  // What came of a frame; of the first two, the number of completions.
  enum class Taken : uint8_t {
    kSilently = 0,    // It caused none; its buffer is gone.
    kCompletion = 1,  // As Write().
    kFirst,  // The same, and more that it caused is to be told before another frame is looked at.
    kNot     // Nothing was done: it is the demultiplexer's.
  };
  // Who knows flows that stand not here: TCP's connections. As Write(), of any frame.
  struct Others {
    Taken (*take)(void* context, packet::Buffer* buffer, uint8_t* frame, uint32_t length,
                  uint64_t hw_clock, Completion* out) = &NoneTakes;
    void* context = nullptr;
  };
  void SetOthers(const Others& others) { others_ = others; }
  // For a frame of which Write() said false.
  Taken AskOthers(packet::Buffer* buffer, uint8_t* frame, uint32_t length, uint64_t hw_clock,
                  Completion* out) const {
    return others_.take(others_.context, buffer, frame, length, hw_clock, out);
  }
  // Enters the flow of a plain frame. `form`: its completion, of which what each datagram has its
  // own of is not looked at.
  void Learn(const uint8_t* frame, const Completion& form, udp::Endpoint* endpoint);

  // What the packets of a poll have in common: the TSC, and the device's clock.
  void SetTicks(uint64_t ticks) { ticks_ = ticks; }
  uint64_t ticks() const { return ticks_; }
  void SetScale(const ClockScale& scale) { scale_ = scale; }

  // Of a raw value of the device's clock.
  int64_t ToNanoseconds(uint64_t raw) const { return scale_.ToNanoseconds(raw); }

  // What a frame must have to be handed to Write(): Ethernet, IPv4 and UDP headers.
  static constexpr uint32_t kLeastFrameBytes = 42;
  // How many bytes at a frame have to be readable, however long it is, for who asks others too.
  static constexpr uint32_t kReadableBytes = 66;

  // Writes the completion of a frame of `length` bytes, at least kLeastFrameBytes, at `frame`, in
  // `buffer`, whose checksums are good, and counts it: true. False: not a plain datagram of a flow
  // that is known; nothing was done. 44 bytes are readable. Inlined (known_flows_write.h).
  bool Write(packet::Buffer* buffer, uint8_t* frame, uint32_t length, uint64_t hw_clock,
             Completion* out) const;
  // The same in three steps: the flow, or null, with the payload's length; the completion but for
  // its time; and that.
  const Entry* Find(const uint8_t* frame, uint32_t length, uint32_t* payload_bytes) const;
  void WriteAs(const Entry& entry, packet::Buffer* buffer, uint8_t* frame, uint32_t payload_bytes,
               Completion* out) const;
  void WriteTime(uint64_t hw_clock, Completion* out) const;
  // The same without a completion, for who has the only socket in question and room for `most`
  // bytes: `buffer` is then the datagram, and its headers stand before it. False also where it is
  // another's, or longer.
  bool Take(const udp::Endpoint* endpoint, packet::Buffer* buffer, uint8_t* frame, uint32_t length,
            size_t most) const;

 private:
  friend class LinkFlows;

  static Taken NoneTakes(void* /*context*/, packet::Buffer* /*buffer*/, uint8_t* /*frame*/,
                         uint32_t /*length*/, uint64_t /*hw_clock*/, Completion* /*out*/) {
    return Taken::kNot;
  }

  static constexpr uint32_t kEntriesLog2 = 6;
  static constexpr uint32_t kEntries = 1u << kEntriesLog2;
  // The 32 bytes of a frame by which a flow is known: from the EtherType on.
  static constexpr uint32_t kHeaderAt = 12;

  struct alignas(128) Entry {
    std::array<uint8_t, 32> header;   // Of its frames, as far as kHeaderMask goes.
    std::array<uint8_t, 24> head;     // Of the completion, up to `buffer`;
    udp::Endpoint* endpoint;          // which stands in its place.
    std::array<uint8_t, 64> tail;     // Of the completion, from `source_ip` on.
  };
  static_assert(sizeof(Entry) == 128 && offsetof(Entry, head) == 32);
  static_assert(offsetof(Entry, endpoint) - offsetof(Entry, head) == offsetof(Completion, buffer));
  static_assert(offsetof(Entry, tail) == offsetof(Completion, source_ip));

  // EtherType, version and header length, fragment bits, protocol, addresses, ports.
  alignas(32) static constexpr std::array<uint8_t, 32> kHeaderMask = {
      0xff, 0xff, 0xff, 0,    0,    0,    0,    0,    0x3f, 0xff, 0, 0xff, 0, 0,
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

  // Whether a frame as Write() has it is a plain datagram of the flow of `header`, and its
  // payload's length.
  static bool IsOf(const uint8_t* header, const uint8_t* frame, uint32_t length,
                   uint32_t* payload_bytes);

  // Where the flow of `frame` stands, if it stands here.
  static uint32_t PlaceOf(const uint8_t* frame);
  static uint32_t Place(uint64_t addresses, uint32_t ports);
  // Has the `header` of an entry at `place` expect what never stands there: no frame finds it.
  static void MakeEmpty(uint32_t place, uint8_t* header);

  std::array<Entry, kEntries> entries_;
  ClockScale scale_;
  uint64_t ticks_ = 0;
  bool any_ = false;
  Others others_;
  uint64_t followed_ = 0;
  const uint64_t* changes_ = nullptr;
};

}  // namespace xtreme::completion

#endif  // XTREME_XTREME_COMPLETION_KNOWN_FLOWS_H_
