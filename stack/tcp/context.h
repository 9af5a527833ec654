// SPDX-License-Identifier: Apache-2.0
//
// What the connections of one ring share: memory, counters, and the sink that takes what
// they emit.
//
// The invariant: a connection reaches the world through its sink only, and the sink calls no
// connection back from inside a call. Units: bytes, nanoseconds. One thread.
#ifndef XTREME_STACK_TCP_CONTEXT_H_
#define XTREME_STACK_TCP_CONTEXT_H_

#include <array>
#include <cstdint>
#include <span>

#include "stack/base/counters.h"
#include "stack/base/time.h"
#include "stack/packet/buffer.h"
#include "stack/packet/buffer_pool.h"
#include "stack/tcp/pcb_options.h"
#include "stack/tcp/reassembler.h"
#include "stack/tcp/segment_queue.h"
#include "stack/wire/tcp_options.h"

namespace xtreme::tcp {

class Pcb;

// Counted for all connections of a context together.
struct PcbCounters {
  uint64_t segments_in = 0;
  uint64_t segments_out = 0;
  uint64_t runs = 0;
  uint64_t retransmits = 0;
  uint64_t timeouts = 0;
  uint64_t tail_probes = 0;
  uint64_t window_probes = 0;
  uint64_t fast_recoveries = 0;
  uint64_t taken_back = 0;
  uint64_t challenge_acks = 0;
  uint64_t challenge_acks_withheld = 0;
  uint64_t resets_in = 0;
  uint64_t resets_out = 0;
  uint64_t unacceptable = 0;
  uint64_t without_ack = 0;
  uint64_t old_timestamp = 0;
  uint64_t no_room = 0;
  uint64_t urgent = 0;
  uint64_t invalid_sack = 0;
  uint64_t after_close = 0;
  uint64_t after_fin = 0;
  uint64_t beyond_window = 0;
  uint64_t without_syn = 0;

  static constexpr auto Table() {
    using C = PcbCounters;
    return std::to_array<base::CounterDescriptor<C>>({
        {"segments_in", "segments that reached a connection", &C::segments_in},
        {"segments_out", "segments that connections emitted", &C::segments_out},
        {"runs", "sends of several segments that the device cuts", &C::runs},
        {"retransmits", "segments emitted again", &C::retransmits},
        {"timeouts", "expiries of the retransmission timer", &C::timeouts},
        {"tail_probes", "tail loss probes (RFC 8985)", &C::tail_probes},
        {"window_probes", "probes of a window that the peer closed", &C::window_probes},
        {"fast_recoveries", "losses found without a time-out", &C::fast_recoveries},
        {"taken_back", "reductions of the congestion window that were taken back: nothing was lost",
         &C::taken_back},
        {"challenge_acks", "challenge ACKs sent (RFC 5961)", &C::challenge_acks},
        {"challenge_acks_withheld", "challenge ACKs not sent: too many this second",
         &C::challenge_acks_withheld},
        {"resets_in", "resets that ended a connection", &C::resets_in},
        {"resets_out", "resets sent", &C::resets_out},
        {"unacceptable", "segments dropped because they lie outside the window", &C::unacceptable},
        {"without_ack", "segments dropped because they carry no acknowledgement", &C::without_ack},
        {"old_timestamp", "segments dropped because their timestamp is old (PAWS)",
         &C::old_timestamp},
        {"no_room", "segments dropped because nobody had room for their payload", &C::no_room},
        {"urgent", "segments with urgent data, delivered in line", &C::urgent},
        {"invalid_sack", "SACK blocks that name bytes which are not outstanding", &C::invalid_sack},
        {"after_close", "connections reset because data came after they were closed",
         &C::after_close},
        {"after_fin", "segments whose payload was dropped because it comes after the peer's FIN",
         &C::after_fin},
        {"beyond_window", "segments in order whose end was dropped: the window does not cover it",
         &C::beyond_window},
        {"without_syn", "segments dropped because the peer's SYN had not come before",
         &C::without_syn},
    });
  }
};
static_assert(base::DescribesEveryCounter<PcbCounters>());

// A segment that a connection emits.
struct Outgoing {
  Seq sequence;
  Seq acknowledgement;
  uint16_t window = 0;  // as it stands in the header
  uint8_t flags = 0;    // wire::kTcpAck and so on
  wire::TcpTimestamps timestamps;
  bool has_timestamps = false;
  // In place of the timestamps alone: of a SYN, and beside selective acknowledgements. Null else.
  const wire::TcpOptions* options = nullptr;
  // The payload, and whose it is; null for what has none: ACK, RST, probe.
  Segment* segment = nullptr;
};

// Where connections emit to.
class Sink {
 public:
  enum class Taken : uint8_t {
    kCopied,      // the payload was copied: nothing refers to it
    kReferenced,  // a posted WQE refers to it: SegmentQueue::OnWqeCompleted follows
    kRefused,     // no room now: Pcb::OnRoom follows
  };

  virtual ~Sink() = default;

  virtual Taken Transmit(Pcb& pcb, const Outgoing& outgoing) = 0;

  // Of the segments queued, so many at most make a run.
  static constexpr size_t kMaxRun = 8;
  // Bytes of payload that the device would take of `pcb` as one send and cut; 0: none.
  virtual uint32_t RunBytes(const Pcb&) const { return 0; }
  // Transmit of a run: of pieces of `segment_bytes`, but the last may be shorter. Each of `run`
  // holds whole pieces, but the last may not; `outgoing` is the header of the first piece, and its
  // segment the first of `run`. All or none: kReferenced, once for each of `run`, or kRefused.
  virtual Taken TransmitRun(Pcb&, const Outgoing& /*outgoing*/, std::span<Segment* const> /*run*/,
                            uint32_t /*segment_bytes*/) {
    return Taken::kRefused;
  }

  // Segments of `pcb` that Transmit would take now, one after the other.
  virtual uint32_t Room(const Pcb&) const { return UINT32_MAX; }

  // `bytes` of payload, next in order: the sink owns the chain from now on. `stamp` is that of the
  // segment they came in. False, and nothing taken, when there is no room: Pcb::Deliver follows.
  virtual bool Deliver(Pcb& pcb, packet::Buffer* chain, uint32_t bytes, uint64_t stamp) = 0;

  // `pcb.events()` has something new.
  virtual void OnEvents(Pcb& pcb) = 0;

  // A send was refused for want of memory, or would be again: Pcb::OnRoom follows, in a while.
  virtual void OnShortOfMemory(Pcb&) {}
  // The same for want of Room(): as after kRefused.
  virtual void OnShortOfRoom(Pcb&) {}
  // Buffers of the pool that wait in the device for what arrives.
  virtual uint32_t PostedBuffers() const { return 0; }
  // Whether there is a place for one OnDone more.
  virtual bool HasRoomForDone() const { return true; }

  // A segment with kWantDone was acknowledged, or (`cancelled`) will not be.
  virtual void OnDone(Pcb& pcb, uint64_t cookie, bool cancelled) = 0;

 protected:
  Sink() = default;
  Sink(const Sink&) = default;
  Sink& operator=(const Sink&) = default;
};

struct Context {
  // What can still be received into.
  uint32_t BuffersLeft() const { return buffers->free_count() + sink->PostedBuffers(); }

  Sink* sink = nullptr;
  SegmentPool* segments = nullptr;
  ReassemblyStore* reassembly = nullptr;
  packet::BufferPool* buffers = nullptr;  // for payload that is copied
  // So many of them are left: by copies for the peer's payload, which may have to be taken before
  // it acknowledges ours, and by payload that comes after a hole for what fills it.
  uint32_t copies_leave = 0;
  uint32_t holes_leave = 0;
  // The most that a packet may have on the link that they leave by now; 0: not known.
  uint32_t link_mtu = 0;
  // No payload is taken: of each segment only what it says of ours.
  bool short_of_buffers = false;
  PcbCounters counters;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_CONTEXT_H_
