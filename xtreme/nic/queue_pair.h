// SPDX-License-Identifier: Apache-2.0
//
// QueuePair: the data path of one ring on one port, a send queue and a receive queue.
//
// Invariant: frames are posted and completed in order, so both sides of a queue are told by a
// free-running count. The seam is crossed once a batch; what must be cheaper than that (is there a
// completion?) is inline here. Only the owner thread of the ring calls, except where said.
// Units: bytes; hardware clock in the device's ticks. Byte order: host, frames as on the wire.

#ifndef XTREME_NIC_QUEUE_PAIR_H_
#define XTREME_NIC_QUEUE_PAIR_H_

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "stack/base/counters.h"
#include "stack/packet/buffer_pool.h"

namespace xtreme::completion {
class KnownFlows;
class LinkFlows;
struct Completion;
struct LinkCompletion;
}  // namespace xtreme::completion
namespace xtreme::stats {
class FrameTap;
}
namespace xtreme::udp {
class Endpoint;
}

namespace xtreme::nic {

struct Capabilities;
struct StreamSegment;

// --- Time ---------------------------------------------------------------------------------------

// Raw ticks to nanoseconds: ns = base_ns + (raw - base_raw) * multiplier / 2^shift.
struct ClockConversion {
  uint64_t base_raw = 0;
  int64_t base_ns = 0;
  uint64_t mask = ~uint64_t{0};  // Valid bits of a raw value.
  uint32_t multiplier = 0;
  uint32_t shift = 0;
  uint64_t error_bound_ns = 0;
  bool in_sync = false;        // The bound holds; false: no sample yet, or samples disagree.

  int64_t ToNanoseconds(uint64_t raw) const {
    const auto ticks = static_cast<int64_t>((raw - base_raw) & mask);
    // Raw values up to half the range before the base are in the past.
    const int64_t delta = ticks > static_cast<int64_t>(mask >> 1)
                              ? ticks - static_cast<int64_t>(mask) - 1
                              : ticks;
    return base_ns + static_cast<int64_t>((static_cast<__int128>(delta) * multiplier) >> shift);
  }
};

// What a device's clock says, in two times.
struct DeviceClock {
  ClockConversion host;                // On the clock of who asks.
  std::optional<ClockConversion> ptp;  // On the device's own, its PTP hardware clock, where the
                                       // system publishes that.
};

// --- Receive ------------------------------------------------------------------------------------

enum RxFlag : uint16_t {
  kRxIpChecksumOk = 1 << 0,  // The NIC verified the IPv4 header checksum: good.
  kRxL4ChecksumOk = 1 << 1,  // The NIC verified the UDP or TCP checksum: good.
  kRxVlanStripped = 1 << 2,  // `vlan` holds the tag, the frame does not.
  kRxTimestamp = 1 << 3,     // `hw_clock` is a time.
};

// A received frame. The buffer carries one reference, now the caller's.
struct RxFrame {
  packet::Buffer* buffer;  // data and length: the whole frame without FCS.
  uint64_t hw_clock;       // Raw.
  uint32_t tag;            // Of the rule that took it: a hint, possibly another process's. 0: none.
  uint16_t flags;          // RxFlag.
  uint16_t vlan;           // Tag control information, when stripped.
};

// --- Send ---------------------------------------------------------------------------------------

enum TxFlag : uint16_t {
  kTxIpChecksum = 1 << 0,  // The NIC computes the IPv4 header checksum.
  kTxL4Checksum = 1 << 1,  // The NIC computes the UDP or TCP checksum.
  kTxSignal = 1 << 2,      // A completion of its own, with a time, not only every N.
  kTxMore = 1 << 3,        // Another frame follows before Flush(): do not ring for this one.
  kTxWarm = 1 << 4,        // Fills a WQE and rings as others do, and reaches no wire (NOP).
};

// A frame to send: header and payload, copied when they fit inline, else the payload is copied to
// on-device memory or gathered. 18 bytes or more in all (some devices need as many to steer by).
struct TxFrame {
  const uint8_t* header;     // `header_length` bytes; 64 are readable, of more than 64 128.
  const uint8_t* payload;    // Without a key: copied before Post returns; else untouched until done
  uint32_t header_length;    // 14 .. 128.
  uint32_t payload_length;
  uint32_t key;              // Of the payload's registration, to gather from it; 0: none.
  uint16_t flags;            // TxFlag.
};

// A place in a header that counts bytes: 16 bits in network order, the payload's length and
// `constant`.
struct LengthField {
  uint16_t at = 0;  // From the header's first byte.
  uint16_t constant = 0;
};

// The longest WQE that PostStream() writes, which is a half of a BlueFlame register; and where the
// frame stands in it.
inline constexpr uint32_t kStreamWqeBytes = 256, kStreamFrameAt = 30;

// What the frames of a flow have in common, for QueuePair::Prepare().
struct TxHeader {
  const uint8_t* bytes;             // 64 are readable.
  uint32_t length;                  // 34 .. 64.
  uint16_t flags;                   // TxFlag: the checksums.
  std::array<LengthField, 2> lengths;
};

// What a post adds to the first words of a TxFront, in their order: one addition does.
struct alignas(32) TxStep {
  static constexpr uint32_t kIndexShift = 40;

  uint64_t index = 0;  // Blocks that the WQE has, as TxFront::index has them.
  uint64_t wqe_bytes = 0;
  uint64_t units = 1;
  uint64_t frame_bytes = 0;

  // Of one or two blocks 1, of three or four 2.
  static constexpr uint32_t UnitsOf(uint32_t blocks) { return blocks > 2 ? 2 : 1; }
};

// A frame that was built ahead, in the device's own form: QueuePair::PostPrepared() sends it as
// often as it is called. Its bytes may be changed between two posts.
struct alignas(64) TxPrepared {
  std::array<uint8_t, 256> image{};
  uint32_t frame_at = 0;      // Of the frame's first byte in the image.
  uint32_t header_bytes = 0;
  uint32_t direct_blocks = 0;  // Those of its WQE if PostReady() may post them, 2 or 3; else 0.
  TxStep step;                 // The driver's.

  // 0: nothing was built.
  uint32_t frame_bytes() const { return static_cast<uint32_t>(step.frame_bytes); }
  uint32_t blocks() const { return static_cast<uint32_t>(step.index >> TxStep::kIndexShift); }
  uint8_t* payload() { return image.data() + frame_at + header_bytes; }
};

// The words of a send queue that change with each post: who posts frames that were built ahead does
// so on them (PostReady() in doorbell.h), without a call. The queue writes them too.
// Invariant: `gate` counts units up to the one with which more than a post is due; then, and while
// a doorbell is owed, its upper half has another epoch. So one comparison says whether what was
// found in an epoch is so still and nothing is due.
struct alignas(32) TxFront {
  // As in TxStep. The next WQE's first block, as WQEs name it, in 16 bits. As it lies: the doorbell
  // record's four bytes, 0, the block as we count; the four from the second on are a WQE's first.
  uint64_t index = 0;
  uint8_t* next_wqe = nullptr;     // Where the next WQE is written.
  uint64_t gate = uint64_t{1} << 32;  // More is due.
  uint64_t direct_bytes = 0;       // Posted by PostReady() and not yet in the queue's counters.

  uint32_t* record = nullptr;      // Of the producer index, big endian.
  uintptr_t next_register = 0;     // For doorbells: one half of it or the other.
  uint64_t before_gate = 0;        // The units posted so far without those that `gate` counts.
  uint64_t wide = 0;               // Frames of two units posted so far.
  uint64_t in_epoch = 0;           // As `gate` has it.
  // Of the WQE of a whole frame, for PostStream(): its first 8 bytes as a number, with index and
  // length 0; and the 8 that ask for checksums, as they lie.
  uint64_t stream_control = 0;
  uint64_t stream_offloads = 0;
  // Of the registers that PostReady() and PostStream() write.
  static constexpr uintptr_t kHalfBytes = kStreamWqeBytes;
  // Epochs are multiples of it, one a version up to kVersions; what is due adds 1, kOwed 2 to one.
  static constexpr uint32_t kEpochs = 4;
  static constexpr uint64_t kOwed = uint64_t{2} << 32;
  static constexpr uint64_t kVersions = (uint64_t{1} << 32) / kEpochs;
  static constexpr uint32_t EpochOf(uint64_t version) {
    return static_cast<uint32_t>(version % kVersions) * kEpochs;
  }
  // Whether nothing but the post itself is due, and what was found in an epoch is so still.
  bool ReadyIn(uint32_t found_in) const { return gate >> 32 == found_in; }
  bool Ready() const { return (gate >> 32) % kEpochs == 0; }
  // Whether more is due with a post than its doorbell, and that of others.
  bool MoreIsDue() const { return static_cast<int32_t>(gate) >= 0; }
  uint64_t units() const { return before_gate + static_cast<uint64_t>(static_cast<int32_t>(gate)); }
  uint64_t posted() const { return units() - wide; }  // Frames so far.
  // More is due from so many units on.
  void BeReadyUntil(uint64_t at) {
    gate += before_gate - at;
    before_gate = at;
  }
  // A doorbell is owed, and is not any more.
  void Owe() { gate |= kOwed; }
  void Settle() { gate &= ~kOwed; }
  void SetEpoch(uint32_t epoch) {
    const uint64_t now = uint64_t{epoch} << 32;
    gate += now - in_epoch;
    in_epoch = now;
  }
  uint32_t first_block() const { return static_cast<uint32_t>(index >> TxStep::kIndexShift); }
  void SetFirstBlock(uint32_t block) {
    static_assert(std::endian::native == std::endian::little);
    index = uint64_t{block} << TxStep::kIndexShift | __builtin_bswap32(block);
  }
  uint32_t record_now() const { return static_cast<uint32_t>(index); }
  // A frame was posted, of `blocks`.
  void Advance(uint32_t blocks) {
    SetFirstBlock(first_block() + blocks);
    gate += TxStep::UnitsOf(blocks);
    wide += blocks > 2;
  }
};

// Of a queue that keeps what it sends for a reader (stats/frame_tap.h), for who posts on `front`
// where they stand and keeps each frame by himself: the queue's own fronts are never ready.
struct SentTap {
  TxFront* front;                     // Never ready: there is no such way,
  stats::FrameTap* frames = nullptr;  // and this is null.
};

// The header of a flow in the device's own form: a send writes its payload behind it, and the
// lengths where they have changed. The driver's, but for max_payload_bytes.
struct TxTemplate {
  // The frame that was sent last: nothing that a send does not write anew, or find as it was.
  mutable TxPrepared frame;
  mutable uint32_t payload_length = ~uint32_t{0};  // Of the lengths in it.
  // The same of a payload that stands in on-device memory.
  mutable TxPrepared stored;
  mutable uint32_t stored_length = ~uint32_t{0};
  uint32_t data_at = 0;                // Of what names the payload there, in `stored`.
  uint32_t header_length = 0;
  uint32_t payload_at = 0;             // From the image's first byte.
  uint32_t most_direct_blocks = 0;     // That PostReady() may post.
  std::array<LengthField, 2> lengths;  // `at` from the image's first byte.
  uint32_t max_payload_bytes = 0;      // The longest payload that is copied with the header.
};

// Bytes that the NIC reads where they lie; untouched until done.
struct TxGather {
  const uint8_t* data;
  uint32_t length;
  uint32_t key;  // Of their registration.
};
inline constexpr uint32_t kMaxTxGathers = 8;

// TCP segments as one send. The NIC cuts the payload, writes the header before each piece, counts
// IPv4 identification and TCP sequence on, sets total lengths and checksums, and leaves FIN and PSH
// to the last.
struct TxSegments {
  const uint8_t* header;       // Ethernet, IPv4 and TCP, of the first segment.
  uint32_t header_length;      // 54 .. 98.
  uint32_t segment_bytes;      // Of payload, of each segment but the last.
  std::span<const TxGather> payload;  // At most kMaxTxGathers.
  uint16_t flags;              // TxFlag; the checksums are always the NIC's.
};

// Bytes to send; copied before the call returns.
struct TxPayload {
  const uint8_t* data;
  uint32_t length;
};

// What was posted of a burst.
struct TxBurst {
  uint32_t frames;
  uint64_t payload_bytes;
};

enum class TxStatus : uint8_t {
  kPosted,
  kFull,      // No room now; reap completions and try again.
  kTooLong,   // Above the port's MTU; or without a key, and there is no room to copy it to.
  kBroken,    // The queue is in error: see error(), of a send queue's after PollSend().
};

// Everything up to `frames` (a free-running count of posted frames) has left the NIC, or, once the
// queue is in error, never will: no posted frame up to it is referred to any more.
struct TxCompletion {
  uint32_t frames;
  uint64_t hw_clock;  // Raw time of this completion; 0 when the device gives none.
  bool lost = false;  // An error's: what it completes may not have left.
};

// --- Trouble ------------------------------------------------------------------------------------

// Why a queue stopped.
struct QueueError {
  bool receive = false;         // The receive queue, else the send queue.
  // The device's, as in its error CQE (mlx5: PRM, "CQE error syndrome").
  uint8_t syndrome = 0;
  uint8_t vendor_syndrome = 0;
  std::string text;
};

struct QueueCounters {
  uint64_t rx_frames = 0;
  uint64_t rx_bytes = 0;
  uint64_t rx_empty = 0;        // Times the receive queue was seen with no buffer posted.
  uint64_t rx_refill_short = 0; // Refills that the pool could not fill.
  uint64_t rx_errors = 0;       // Error CQEs of the receive queue.
  uint64_t rx_too_long = 0;     // Frames that the device had no room for in their buffer.
  uint64_t rx_malformed = 0;    // CQEs of what cannot be: of no buffer, or beyond its end.
  uint64_t tx_frames = 0;
  uint64_t tx_bytes = 0;
  uint64_t tx_gathered = 0;     // Copied neither into the WQE nor to on-device memory.
  uint64_t tx_segmented = 0;    // Sends that the NIC cut into TCP segments.
  uint64_t tx_device_memory = 0;  // Sent from on-device memory.
  uint64_t tx_device_memory_bytes = 0;
  uint64_t tx_device_memory_full = 0;  // Gathered because the on-device memory was full.
  uint64_t tx_blueflame = 0;    // WQEs written through BlueFlame.
  uint64_t tx_doorbells = 0;    // Doorbells rung, BlueFlame not included.
  uint64_t tx_full = 0;         // Posts refused because the queue was full.
  uint64_t tx_warm = 0;
  uint64_t tx_errors = 0;
  uint64_t tx_malformed = 0;    // Send CQEs that name no posted frame.

  static constexpr auto Table() {
    using Q = QueueCounters;
    return std::to_array<base::CounterDescriptor<Q>>({
        {"rx_frames", "frames taken from the receive queue", &Q::rx_frames},
        {"rx_bytes", "bytes of those frames", &Q::rx_bytes},
        {"rx_empty", "times no receive buffer was posted: frames may be lost", &Q::rx_empty},
        {"rx_refill_short", "refills that found the pool empty", &Q::rx_refill_short},
        {"rx_errors", "error completions of the receive queue", &Q::rx_errors},
        {"rx_too_long", "frames longer than a receive buffer, which the port let through: dropped",
         &Q::rx_too_long},
        {"rx_malformed", "completions of no posted buffer, or longer than it: dropped",
         &Q::rx_malformed},
        {"tx_frames", "frames posted to the send queue", &Q::tx_frames},
        {"tx_bytes", "bytes of those frames", &Q::tx_bytes},
        {"tx_gathered", "frames whose payload the NIC gathers; others are in their WQE",
         &Q::tx_gathered},
        {"tx_segmented", "sends that the NIC cuts into TCP segments, each counted as one frame",
         &Q::tx_segmented},
        {"tx_device_memory", "frames whose payload was sent from on-device memory",
         &Q::tx_device_memory},
        {"tx_device_memory_bytes", "bytes of those payloads", &Q::tx_device_memory_bytes},
        {"tx_device_memory_full", "frames gathered because the on-device memory was full",
         &Q::tx_device_memory_full},
        {"tx_blueflame", "WQEs written through BlueFlame", &Q::tx_blueflame},
        {"tx_doorbells", "doorbells rung without BlueFlame", &Q::tx_doorbells},
        {"tx_full", "posts refused because the send queue was full", &Q::tx_full},
        {"tx_warm", "warm sends", &Q::tx_warm},
        {"tx_errors", "error completions of the send queue", &Q::tx_errors},
        {"tx_malformed", "completions that name no posted frame", &Q::tx_malformed},
    });
  }
};
static_assert(base::DescribesEveryCounter<QueueCounters>());

// --- For who posts and polls by himself ----------------------------------------------------------

// CQEs of 64 bytes in a ring of a power of two.
struct CompletionAddresses {
  uint8_t* cqes = nullptr;
  uint32_t entries = 0;
  uint32_t consumer = 0;       // CQEs taken so far, free-running.
  uint32_t* record = nullptr;  // Of the consumer index, big endian.
  uint32_t number = 0;
};

// Where queues lie, as the device sees them, and how far they have come (mlx5: PRM, "Work Queues").
struct QueueAddresses {
  uint8_t* send_blocks = nullptr;      // WQEBBs of 64 bytes, a power of two of them.
  uint32_t send_block_count = 0;
  uint32_t send_producer = 0;          // Blocks posted so far, free-running.
  uint32_t* send_record = nullptr;     // Big endian, as the other.
  uint8_t* send_register = nullptr;    // To be written next: a doorbell, or BlueFlame.
  uint32_t blueflame_bytes = 0;        // Of a half of it; the other one is at the address ^ this.
  uint32_t queue_number = 0;
  CompletionAddresses send_completions;
  uint8_t* receive_segments = nullptr;  // Data segments of 16 bytes, a power of two of them.
  uint32_t receive_segment_count = 0;
  uint32_t receive_producer = 0;
  uint32_t* receive_record = nullptr;
  CompletionAddresses receive_completions;
  uint32_t pool_key = 0;
};

class QueuePair {
 public:
  virtual ~QueuePair() = default;

  // Nothing when there is no device behind it. Right until the next call of another function.
  virtual std::optional<QueueAddresses> Addresses() const { return std::nullopt; }

  // --- Receive ---

  // Whether PollReceive would find a completion: one load of device-written memory.
  bool ReceiveReady() const {
    return (__atomic_load_n(receive_peek_, __ATOMIC_RELAXED) & 1) == receive_phase_;
  }

  // Takes up to out.size() frames in completion order; the number taken. Error CQEs are counted and
  // end the queue (see error()), but for those of a frame longer than its buffer; frames that came
  // before are taken first, by a call of their own.
  virtual uint32_t PollReceive(std::span<RxFrame> out) = 0;

  // Takes up to `most` frames, in completion order and up to the first that `flows` does not know
  // or that is anything but a frame in order, and writes a completion for each at `out`; how many.
  // With kRest there are others, perhaps, or a refill is due; with kRefill that alone. The rest is
  // PollReceive's: a queue may always leave all to it.
  static constexpr uint32_t kRest = 1u << 31;
  static constexpr uint32_t kRefill = 1u << 30;
  static constexpr uint32_t kPolled = kRefill - 1;  // How many.
  virtual uint32_t PollKnown(const completion::KnownFlows& flows, completion::Completion* out,
                             uint32_t most) = 0;

  // Whether the next frame was looked at by PollKnown and left, so that nobody need do so again.
  bool declined() const { return declined_; }
  // Whether one was since the last call.
  bool TakeDeclined() { return std::exchange(declined_, false); }

  // The same in the other form, of those that `flows` knows; a queue may always leave all.
  virtual uint32_t PollLinks(const completion::LinkFlows& /*flows*/,
                             completion::LinkCompletion* /*out*/, uint32_t /*most*/) {
    return 0;
  }

  // Takes the next frame, if it is one that PollKnown would take and a datagram of at most `most`
  // bytes to `endpoint`, as KnownFlows::Take has it: its buffer, which is then the caller's. Null:
  // nothing was done; a queue may always say so.
  virtual packet::Buffer* TakeKnown(const completion::KnownFlows& /*flows*/,
                                    const udp::Endpoint* /*endpoint*/, size_t /*most*/) {
    return nullptr;
  }

  // Whether enough buffers may be missing for a refill to be worth it.
  bool RefillDue() const { return receive_peek_ >= receive_stop_; }
  // Posts buffers of the pool until the queue is full or the pool is empty, if a refill is due; the
  // number posted.
  virtual uint32_t Refill() = 0;

  // Buffers posted and not yet filled, and the lowest number seen since the last call (a low-water
  // mark: 0 means that frames may have been lost).
  virtual uint32_t posted() const = 0;
  virtual uint32_t TakeLowWater() = 0;

  // --- Send ---

  // Posts one frame. Rings for it unless kTxMore. On kPosted the frame's number is posted_frames().
  virtual TxStatus Post(const TxFrame& frame) = 0;

  // Brings the header of a flow into the device's own form, for the posts below.
  virtual void Prepare(const TxHeader& header, TxTemplate* flow) const = 0;

  // Posts one frame of a flow, its payload at most max_payload_bytes. Of `flags` kTxMore counts.
  virtual TxStatus PostCopied(const TxTemplate& flow, const uint8_t* payload,
                              uint32_t payload_length, uint32_t flags) = 0;

  // Posts one frame of a flow, its payload, of more than max_payload_bytes, copied to on-device
  // memory; the frame no longer than the port's MTU allows. kTooLong: no room there, or not this
  // way: Post() may find another.
  virtual TxStatus PostStored(const TxTemplate& /*flow*/, const uint8_t* /*payload*/,
                              uint32_t /*payload_length*/, uint32_t /*flags*/) {
    return TxStatus::kTooLong;
  }

  // Whether a payload of so many bytes has room in on-device memory, with what is known to have
  // completed.
  virtual bool HasRoomToStore(uint32_t /*payload_length*/) const { return false; }

  // Posts a frame of a flow for each payload, in order, up to the first that is too long or finds
  // no room. Rings for none of them.
  virtual TxBurst PostBurst(const TxTemplate& flow, std::span<const TxPayload> payloads) = 0;

  // Builds a whole frame ahead; its header and payload are copied. False: longer than
  // max_inline_bytes.
  virtual bool PrepareFrame(const TxFrame& frame, TxPrepared* prepared) const = 0;
  // Posts it. Of `flags` kTxMore, kTxSignal and kTxWarm count.
  virtual TxStatus PostPrepared(const TxPrepared& prepared, uint32_t flags) = 0;

  // One that is never ready, for all: nobody writes it.
  static TxFront* NoFront() {
    static TxFront none;
    return &none;
  }
  // For PostReady<kBlocks>() of `prepared`, as long as the queue lives; never ready if it is not of
  // so many direct blocks.
  template <uint32_t kBlocks = 2>
  TxFront* FrontFor(const TxPrepared& prepared) {
    return prepared.direct_blocks == kBlocks ? front_ : NoFront();
  }
  // Of a queue that keeps what it sends: whether of this frame its caller may do so.
  bool MayKeep(const TxPrepared& prepared) const {
    return sent_tap_.frames != nullptr && prepared.direct_blocks != 0;
  }
  const SentTap& sent_tap() const { return sent_tap_; }

  // The front's, of who compares by it: nothing that was found before is so for sure.
  void SetEpoch(uint32_t epoch) {
    TxFront* const front = sent_tap_.frames != nullptr ? sent_tap_.front : front_;
    if (front != NoFront()) front->SetEpoch(epoch);
  }

  // For PostStream(), until the queue ends; never ready if it has no such way.
  TxFront* StreamFront() const { return stream_front_; }
  bool TakesStreams() const { return stream_front_ != NoFront(); }
  // Posts what PostStream() would if StreamFront() were ready, with what else is due, and rings for
  // all that waited. False: it was not, as there is no room; a queue may always say so, and Post()
  // does it or says why not.
  virtual bool PostStreamOtherwise(const StreamSegment& /*segment*/) { return false; }
  // Posts a segment with little or no payload as PostStream() would, to be rung for by Flush().
  // False: it was not; a queue may always say so, and Post() does it.
  virtual bool PlaceStream(const StreamSegment& /*segment*/) { return false; }
  // Posts a segment whose payload is too long for its WQE and is gathered by `key` from where it
  // lies, untouched until done. Of `flags` kTxMore and kTxSignal count. Its number is
  // posted_frames() then; nothing: it was not, as of both.
  virtual std::optional<uint32_t> PostGathered(const StreamSegment& /*segment*/, uint32_t /*key*/,
                                               uint32_t /*flags*/) {
    return std::nullopt;
  }

  // Fetches the lines that a post of PostReady() writes and the device may have read last, for who
  // has something to do before it.
  void FetchAhead() const {
    if (front_->record == nullptr) return;
    FetchToWrite(front_->record);
    FetchToWrite(front_->next_wqe);
    FetchToWrite(front_->next_wqe + 64);
  }

  // Posts TCP segments, which count as one frame. kTooLong: above max_segmented_bytes, a segment
  // above the port's MTU, or too many pieces.
  virtual TxStatus PostSegments(const TxSegments& segments) = 0;

  // Has the last frame that was posted with kTxMore and not rung for complete for itself, as if it
  // had been posted with kTxSignal. False: none waits, or the queue is in error.
  virtual bool SignalLast() { return false; }
  // Rings for everything posted with kTxMore, by one doorbell.
  virtual void Flush() = 0;

  // Frames posted so far (free-running, warm sends included).
  virtual uint32_t posted_frames() const = 0;

  // Takes up to out.size() send completions; the number taken.
  virtual uint32_t PollSend(std::span<TxCompletion> out) = 0;

  // Whether no completion is due: nothing to poll for. Frames posted after the last signalled one
  // complete with the next signalled one.
  bool SendIdle() const { return send_completions_due_ == 0; }

  // --- Waiting ---

  // Makes fd() readable at the next receive (or, if asked, send) completion. Call with both queues
  // seen empty, then look once more: a completion that came in between raises no event.
  virtual void Arm(bool for_send) = 0;
  virtual int fd() const = 0;
  // Takes the events off fd() after it was readable. Never blocks.
  virtual void AcknowledgeEvents() = 0;

  // --- State ---

  // Looks whether the device has said that the queue pair stopped, which no completion may tell:
  // error() does then.
  virtual void LookForStop() {}
  // The first error; nothing while the queue pair works.
  virtual const std::optional<QueueError>& error() const = 0;
  virtual const Capabilities& capabilities() const = 0;
  virtual const QueueCounters& counters() const = 0;
  // Key of the pool's memory, for TxFrame::key.
  virtual uint32_t pool_key() const = 0;

 protected:
  // Where the next receive completion will show, and the value of bit 0 that says it is there.
  // Written by the queue after each PollReceive.
  const uint8_t* receive_peek_ = nullptr;
  // Where a refill is due, perhaps, before what shows there. A queue that leaves it alone is asked
  // each time.
  const uint8_t* receive_stop_ = nullptr;
  uint8_t receive_phase_ = 0;
  // Written by PollKnown.
  bool declined_ = false;
  // Signalled frames posted and not completed. Written by Post and PollSend.
  uint32_t send_completions_due_ = 0;
  TxFront* front_ = NoFront();
  TxFront* stream_front_ = NoFront();
  SentTap sent_tap_{NoFront()};

  static void FetchToWrite(const void* at) {
    // GCC makes of its own builtin one that is not for writing, where it must run on any x86.
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
    __builtin_prefetch(at, 1);
#endif
  }
};

}  // namespace xtreme::nic

#endif  // XTREME_NIC_QUEUE_PAIR_H_
