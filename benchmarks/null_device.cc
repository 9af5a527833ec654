// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/null_device.h"

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "stack/base/byte_order.h"
#include "xtreme/mlx5/completion_queue.h"
#include "xtreme/mlx5/cqe.h"
#include "xtreme/mlx5/send_wqe.h"
#include "xtreme/mlx5/tapped_queue_pair.h"

namespace xtreme::benchmarks {
namespace {

constexpr uint32_t kWqebbBytes = 64;
constexpr uint32_t kWqebbsOfFrame = 4;
constexpr uint32_t kSegmentsOfWqebb = 4;
constexpr uint32_t kQpn = 0x123;
constexpr uint32_t kKey = 0x4567;
constexpr uint32_t kDeviceMemoryKey = 0x89ab;
constexpr uint32_t kDoorbellRegister = 0x800;  // Of the UAR page.
constexpr uint32_t kBlueFlameBytes = 256;
constexpr uint32_t kDeviceMemoryLog2 = 18;  // As many long frames as a scenario sends.
// 42 bytes of headers and what the MTU leaves.
constexpr uint32_t kMtu = 1500;
constexpr uint32_t kFrameBytes = kMtu + 18;
constexpr uint32_t kSegmentedBytes = 256 << 10;

uint32_t LoadRecord(const uint32_t& record) {
  return base::HostToBigEndian(
      std::atomic_ref<const uint32_t>(record).load(std::memory_order_acquire));
}

void StoreOpOwn(mlx5_cqe64& cqe, uint8_t opcode, uint32_t index, uint32_t entries_log2) {
  // Last, and after the rest: the driver may poll on another core.
  std::atomic_ref<uint8_t>(cqe.op_own)
      .store(static_cast<uint8_t>(opcode << 4 | mlx5::OwnerBit(index, entries_log2)),
             std::memory_order_release);
}

mlx5::SendQueue::Options SendOptions(const NullDevice::Options& options, uint32_t signal_every) {
  return {.signal_every = signal_every,
          .max_frame_bytes = kFrameBytes,
          .max_segmented_bytes = options.cuts_segments ? kSegmentedBytes : 0};
}

}  // namespace

// As bring-up would have laid it out: page-aligned rings, records on lines of their own.
struct NullDevice::Rings {
  struct alignas(kWqebbBytes) Block {
    uint8_t bytes[kWqebbBytes];
  };
  struct alignas(64) Record {
    uint32_t words[2];
  };

  explicit Rings(const Options& options)
      : send(new Block[kWqebbsOfFrame << options.send_frames_log2]()),
        send_cqes(new mlx5_cqe64[1u << options.send_frames_log2]()),
        receive(new mlx5_wqe_data_seg[1u << options.receive_frames_log2]()),
        receive_cqes(new mlx5_cqe64[1u << options.receive_frames_log2]()),
        device_memory(new Block[(1u << kDeviceMemoryLog2) / kWqebbBytes]()) {}

  std::unique_ptr<Block[]> send;
  std::unique_ptr<mlx5_cqe64[]> send_cqes;
  std::unique_ptr<mlx5_wqe_data_seg[]> receive;
  std::unique_ptr<mlx5_cqe64[]> receive_cqes;
  std::unique_ptr<Block[]> device_memory;
  Record send_record{};
  Record send_cq_record{};
  Record receive_record{};
  Record receive_cq_record{};
  alignas(4096) uint8_t uar[4096]{};
};

NullDevice::NullDevice(const Options& options)
    : options_(options), rings_(std::make_unique<Rings>(options)) {
  const mlx5::QueuePairMemory queues = memory();
  mlx5::PrepareCqes(queues.send.completions);
  mlx5::PrepareCqes(queues.receive.completions);
}

NullDevice::~NullDevice() = default;

std::span<const uint8_t> NullDevice::doorbells() const {
  return {rings_->uar + kDoorbellRegister, 2 * kBlueFlameBytes};
}

mlx5::QueuePairMemory NullDevice::memory() const {
  Rings& rings = *rings_;
  mlx5::QueuePairMemory memory;
  memory.send = {.wqebbs = rings.send[0].bytes,
                 .wqebbs_log2 = options_.send_frames_log2 + 2,
                 .record = &rings.send_record.words[1],
                 .doorbell_register = rings.uar + kDoorbellRegister,
                 .blueflame_bytes = kBlueFlameBytes,
                 .qpn = kQpn,
                 .device_memory = {.bytes = rings.device_memory[0].bytes,
                                   .bytes_log2 = kDeviceMemoryLog2,
                                   .key = kDeviceMemoryKey},
                 .completions = {.cqes = reinterpret_cast<uint8_t*>(rings.send_cqes.get()),
                                 .cqes_log2 = options_.send_frames_log2,
                                 .record = rings.send_cq_record.words,
                                 .uar = rings.uar}};
  if (!options_.device_memory) memory.send.device_memory = {};
  memory.receive = {.wqes = reinterpret_cast<uint8_t*>(rings.receive.get()),
                    .wqes_log2 = options_.receive_frames_log2,
                    .record = &rings.receive_record.words[0],
                    .key = kKey,
                    .completions = {.cqes = reinterpret_cast<uint8_t*>(rings.receive_cqes.get()),
                                    .cqes_log2 = options_.receive_frames_log2,
                                    .record = rings.receive_cq_record.words,
                                    .uar = rings.uar}};
  return memory;
}

uint16_t NullDevice::posted_wqebbs() const {
  return static_cast<uint16_t>(LoadRecord(rings_->send_record.words[1]));
}

uint32_t NullDevice::CompleteSends() {
  const auto end = static_cast<uint16_t>(LoadRecord(rings_->send_record.words[1]));
  uint32_t frames = 0;
  for (; sent_ != end; ++frames) FinishSend();
  return frames;
}

void NullDevice::FinishSend() {
  const uint32_t mask = (kWqebbsOfFrame << options_.send_frames_log2) - 1;
  const uint8_t* const wqe = rings_->send[sent_ & mask].bytes;
  if (wqe[offsetof(mlx5_wqe_ctrl_seg, fm_ce_se)] & MLX5_WQE_CTRL_CQ_UPDATE) WriteSendCqe(sent_);
  const uint32_t segments = mlx5::SegmentsOf(wqe);
  sent_ = static_cast<uint16_t>(sent_ + (segments + kSegmentsOfWqebb - 1) / kSegmentsOfWqebb);
}

uint32_t NullDevice::CarryTo(NullDevice* to, uint32_t most) {
  const auto end = static_cast<uint16_t>(LoadRecord(rings_->send_record.words[1]));
  uint32_t frames = 0;
  for (; sent_ != end && frames != most; ++frames) {
    Arrive(sent_, to);
    FinishSend();
  }
  return frames;
}

uint8_t* NullDevice::NextBuffer() const {
  const uint32_t slot = received_ & ((1u << options_.receive_frames_log2) - 1);
  const uint64_t address = base::HostToBigEndian<uint64_t>(rings_->receive[slot].addr);
  return posted_receives() == 0 ? nullptr : reinterpret_cast<uint8_t*>(address);
}

void NullDevice::Arrive(uint16_t wqebb, NullDevice* to) const {
  const uint32_t mask = (kWqebbsOfFrame << options_.send_frames_log2) - 1;
  if (rings_->send[wqebb & mask].bytes[3] == MLX5_OPCODE_TSO) return ArriveCut(wqebb, to);
  uint8_t* const frame = to->NextBuffer();
  if (frame != nullptr) to->WriteReceiveCqe(WriteHeaders(wqebb, frame));
}

// TCP over IPv4 without tag and options of IP: the only ones that rigs send so.
void NullDevice::ArriveCut(uint16_t wqebb, NullDevice* to) const {
  constexpr size_t kIpAt = 14, kTcpAt = 34;
  constexpr uint8_t kFinPsh = 0x09;
  const uint32_t mask = (kWqebbsOfFrame << options_.send_frames_log2) - 1;
  const auto segment = [&](uint32_t i) {
    return rings_->send[(wqebb + i / kSegmentsOfWqebb) & mask].bytes +
           i % kSegmentsOfWqebb * mlx5::kSegmentBytes;
  };
  const uint32_t cut = base::LoadBe16(segment(1) + 6);
  const uint32_t header_bytes = mlx5::InlineBytesOf(segment(0));
  uint32_t payload_bytes = 0;
  for (uint32_t i = mlx5::SegmentsWithInline(header_bytes); i < mlx5::SegmentsOf(segment(0)); ++i) {
    payload_bytes += base::LoadBe32(segment(i));
  }
  for (uint32_t at = 0; at < payload_bytes; at += cut) {
    uint8_t* const frame = to->NextBuffer();
    if (frame == nullptr) return;
    WriteHeaders(wqebb, frame);
    const uint32_t length = std::min(cut, payload_bytes - at);
    base::StoreBe16(frame + kIpAt + 2, static_cast<uint16_t>(header_bytes - kIpAt + length));
    base::StoreBe32(frame + kTcpAt + 4, base::LoadBe32(frame + kTcpAt + 4) + at);
    if (at + length < payload_bytes) frame[kTcpAt + 13] &= static_cast<uint8_t>(~kFinPsh);
    to->WriteReceiveCqe(header_bytes + length);
  }
}

// The first of what stands inline in a WQE, which may go over the ring's end. Returns the length of
// the whole frame.
uint32_t NullDevice::WriteHeaders(uint16_t wqebb, uint8_t* frame) const {
  const uint32_t mask = (kWqebbsOfFrame << options_.send_frames_log2) - 1;
  const auto block = [&](uint32_t i) { return rings_->send[(wqebb + i) & mask].bytes; };
  const uint8_t* const wqe = block(0);
  std::memcpy(frame, wqe + mlx5::kInlineOffset, kWqebbBytes - mlx5::kInlineOffset);
  std::memcpy(frame + kWqebbBytes - mlx5::kInlineOffset, block(1), kWqebbBytes);
  const uint32_t inline_bytes = mlx5::InlineBytesOf(wqe);
  const uint32_t segments = mlx5::SegmentsWithInline(inline_bytes);
  if (mlx5::SegmentsOf(wqe) == segments) return inline_bytes;
  const uint8_t* const gathered = block(segments / kSegmentsOfWqebb) +
                                  segments % kSegmentsOfWqebb * mlx5::kSegmentBytes;
  return inline_bytes + base::LoadBe32(gathered);
}

void NullDevice::WriteSendCqe(uint16_t wqebb) {
  const uint32_t mask = (1u << options_.send_frames_log2) - 1;
  mlx5_cqe64& cqe = rings_->send_cqes[send_cqes_ & mask];
  cqe.timestamp = base::HostToBigEndian(clock_ += 100);
  cqe.sop_drop_qpn = base::HostToBigEndian(uint32_t{MLX5_OPCODE_SEND} << 24 | kQpn);
  cqe.wqe_counter = base::HostToBigEndian(wqebb);
  StoreOpOwn(cqe, MLX5_CQE_REQ, send_cqes_, options_.send_frames_log2);
  ++send_cqes_;
}

uint32_t NullDevice::CompleteReceives(uint32_t frames, uint32_t bytes) {
  const uint32_t count = std::min<uint32_t>(frames, posted_receives());
  for (uint32_t i = 0; i < count; ++i) WriteReceiveCqe(bytes);
  return count;
}

uint32_t NullDevice::posted_receives() const {
  return static_cast<uint16_t>(LoadRecord(rings_->receive_record.words[0]) -
                               static_cast<uint16_t>(received_));
}

void NullDevice::WriteReceiveCqe(uint32_t bytes) {
  const uint32_t mask = (1u << options_.receive_frames_log2) - 1;
  mlx5_cqe64& cqe = rings_->receive_cqes[received_ & mask];
  cqe.hds_ip_ext = MLX5_CQE_L2_OK | MLX5_CQE_L3_OK | MLX5_CQE_L4_OK;
  cqe.byte_cnt = base::HostToBigEndian(bytes);
  cqe.timestamp = base::HostToBigEndian(clock_ += 100);
  cqe.sop_drop_qpn = 0;
  cqe.wqe_counter = base::HostToBigEndian(static_cast<uint16_t>(received_));
  StoreOpOwn(cqe, MLX5_CQE_RESP_SEND, received_, options_.receive_frames_log2);
  ++received_;
}

void WriteFrames(packet::BufferPool* pool, std::span<const uint8_t> frame) {
  for (uint32_t i = 0; i < pool->capacity(); ++i) {
    std::memcpy(pool->at(i)->data, frame.data(), frame.size());
  }
}

nic::Capabilities NullCapabilities(const NullDevice::Options& options) {
  return {.blueflame = true,
          .blueflame_bytes = kBlueFlameBytes,
          .max_inline_bytes = mlx5::kMaxInlineFrameBytes,
          .transmit_checksum = true,
          .receive_checksum = true,
          .receive_timestamp = true,
          .transmit_timestamp = true,
          .min_inline_header_bytes = 0,
          .send_queue_frames = 1u << options.send_frames_log2,
          .receive_queue_frames = 1u << options.receive_frames_log2,
          .device_memory_bytes = options.device_memory ? 1u << kDeviceMemoryLog2 : 0,
          .max_segmented_bytes = options.cuts_segments ? kSegmentedBytes : 0,
          .mtu = kMtu,
          .link_bits_per_second = 25'000'000'000,
          .device = "null device",
          .lacking = {}};
}

std::unique_ptr<mlx5::PlainQueuePair> MakeQueuePair(const NullDevice& device,
                                               const NullDevice::Options& options,
                                               uint32_t signal_every, packet::BufferPool* pool) {
  return std::make_unique<mlx5::PlainQueuePair>(device.memory(), SendOptions(options, signal_every),
                                                mlx5::ReceiveQueue::Options{},
                                                NullCapabilities(options), pool, nullptr);
}

std::unique_ptr<mlx5::TappedQueuePair> MakeTappedQueuePair(stats::FrameTap* tap,
                                                           const NullDevice& device,
                                                           const NullDevice::Options& options,
                                                           uint32_t signal_every,
                                                           packet::BufferPool* pool) {
  return std::make_unique<mlx5::TappedQueuePair>(
      tap, device.memory(), SendOptions(options, signal_every), mlx5::ReceiveQueue::Options{},
      NullCapabilities(options), pool, nullptr);
}

}  // namespace xtreme::benchmarks
