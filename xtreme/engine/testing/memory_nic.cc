// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/testing/memory_nic.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "stack/base/byte_order.h"
#include "stack/wire/ethernet.h"
#include "stack/wire/ipv4.h"
#include "xtreme/completion/known_flows_write.h"
#include "xtreme/completion/link_flows_write.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::engine::testing {
namespace {

// In what is posted without a call: a card has segments of its own before the frame.
constexpr uint32_t kDirectFlagsAt = 16;
constexpr uint32_t kDirectFrameAt = 30;

// Memory is usable as it is: that it was asked for is counted.
class CountedRegistration final : public nic::Registration {
 public:
  explicit CountedRegistration(std::shared_ptr<std::atomic<int>> count)
      : count_(std::move(count)) {
    ++*count_;
  }
  ~CountedRegistration() override { --*count_; }
  uint32_t key() const override { return 0x5678; }

 private:
  const std::shared_ptr<std::atomic<int>> count_;
};

}  // namespace

MemoryQueuePair::MemoryQueuePair(const nic::Capabilities& capabilities,
                                 const nic::QueuePairOptions& options, packet::BufferPool* pool)
    : capabilities_(capabilities), options_(options), pool_(pool), fd_(eventfd(0, EFD_NONBLOCK)) {
  receive_peek_ = &shown_;
  receive_phase_ = 1;
}

struct MemoryQueuePair::Direct {
  alignas(512) std::array<uint8_t, 2 * nic::TxFront::kHalfBytes> registers{};
  alignas(64) std::array<uint8_t, 256> wqe{};
  uint32_t record = 0;
  nic::TxFront front;
};

void MemoryQueuePair::TakeDirectPosts() {
  direct_ = std::make_unique<Direct>();
  direct_->front = {.next_wqe = direct_->wqe.data(), .record = &direct_->record,
                    .next_register = reinterpret_cast<uintptr_t>(direct_->registers.data()),
                    .stream_offloads = nic::kTxIpChecksum | nic::kTxL4Checksum};
  static_assert(kDirectFrameAt == nic::kStreamFrameAt && kDirectFlagsAt == 16);
  front_ = stream_front_ = &direct_->front;
  AllowDirect();
}

void MemoryQueuePair::AllowDirect() {
  if (direct_ == nullptr) return;
  const bool ready = !error_ && visible_ == posted_frames_ &&
                     send_completions_due_ < options_.send_queue_frames;
  direct_->front.BeReadyUntil(direct_->front.units() + ready);
}

void MemoryQueuePair::BeDue() {
  TakeDirect();
  direct_->front.BeReadyUntil(direct_->front.units());
}

void MemoryQueuePair::TakeDirect() {
  if (direct_ == nullptr || direct_->front.first_block() == 0) return;
  nic::TxFront& front = direct_->front;
  const auto bytes = static_cast<uint32_t>(std::exchange(front.direct_bytes, 0));
  front.next_wqe = direct_->wqe.data();
  const bool covered =
      base::LoadBe32(reinterpret_cast<const uint8_t*>(&direct_->record)) == front.first_block();
  front.SetFirstBlock(0);
  front.before_gate -= front.units();
  front.wide = 0;
  // What it was not given, it does not send.
  if (covered) {
    const auto* written =
        reinterpret_cast<const uint8_t*>(front.next_register ^ nic::TxFront::kHalfBytes);
    Post({.header = written + kDirectFrameAt,
          .payload = nullptr,
          .header_length = bytes,
          .payload_length = 0,
          .key = 0,
          .flags = base::LoadNative<uint16_t>(written + kDirectFlagsAt)});
    ++direct_posts_;
  }
  AllowDirect();
}

bool MemoryQueuePair::PostStreamOtherwise(const nic::StreamSegment& segment) {
  const bool posted = PostStream(segment, 0) == nic::TxStatus::kPosted;
  due_posts_ += posted;
  return posted;
}

bool MemoryQueuePair::PlaceStream(const nic::StreamSegment& segment) {
  return PostGathered(segment, /*key=*/0, nic::kTxMore).has_value();
}

std::optional<uint32_t> MemoryQueuePair::PostGathered(const nic::StreamSegment& segment,
                                                      uint32_t key, uint32_t flags) {
  if (direct_ == nullptr) return std::nullopt;
  if (PostStream(segment, flags, key) != nic::TxStatus::kPosted) return std::nullopt;
  ++direct_posts_;
  return posted_frames();
}

nic::TxStatus MemoryQueuePair::PostStream(const nic::StreamSegment& segment, uint32_t flags,
                                          uint32_t key) {
  constexpr size_t kIpLengthAt = 16, kIpAt = 14;
  std::array<uint8_t, nic::StreamSegment::kLongestHeader> header;
  std::memcpy(header.data(), segment.headers, segment.header_bytes);
  std::memcpy(&header[nic::StreamSegment::kTcpAt], &segment.tcp,
              segment.header_bytes - nic::StreamSegment::kTcpAt);
  base::StoreBe16(&header[kIpLengthAt], static_cast<uint16_t>(segment.frame_bytes() - kIpAt));
  return Post({.header = header.data(),
               .payload = segment.payload,
               .header_length = segment.header_bytes,
               .payload_length = segment.payload_length,
               .key = key,
               .flags = static_cast<uint16_t>(nic::kTxIpChecksum | nic::kTxL4Checksum | flags)});
}

MemoryQueuePair::~MemoryQueuePair() {
  for (packet::Buffer* buffer : posted_) packet::BufferPool::Release(buffer);
  std::erase_if(received_, [](const nic::RxFrame& frame) { return frame.buffer == nullptr; });
  for (const nic::RxFrame& frame : received_) packet::BufferPool::Release(frame.buffer);
  close(fd_);
}

bool MemoryQueuePair::Inject(std::span<const uint8_t> frame, uint32_t tag, uint64_t hw_clock,
                             uint16_t flags, uint16_t vlan) {
  if (posted_.empty()) {
    ++counters_.rx_empty;
    return false;
  }
  packet::Buffer* buffer = posted_.front();
  posted_.pop_front();
  low_water_ = std::min(low_water_, posted());
  std::copy(frame.begin(), frame.end(), buffer->data);
  buffer->length = static_cast<uint32_t>(frame.size());
  received_.push_back(
      {.buffer = buffer, .hw_clock = hw_clock, .tag = tag, .flags = flags, .vlan = vlan});
  if (armed_) eventfd_write(fd_, 1);
  armed_ = false;
  Show();
  return true;
}

void MemoryQueuePair::CompleteSends(uint64_t hw_clock) {
  TakeDirect();
  AllowDirect();
  if (completed_frames_ == visible_) return;
  device_memory_used_ = 0;
  completed_frames_ = visible_;
  completions_.push_back(
      {.frames = visible_, .hw_clock = hw_clock, .lost = error_.has_value()});
}

void MemoryQueuePair::Break() {
  error_ = nic::QueueError{.receive = true, .syndrome = 4, .text = "local protection error"};
  visible_ = posted_frames();
  CompleteSends();
  Show();
}

uint32_t MemoryQueuePair::PollReceive(std::span<nic::RxFrame> out) {
  uint32_t count = 0;
  for (; count < out.size() && HasFrame(); ++count) {
    out[count] = received_.front();
    received_.pop_front();
    ++counters_.rx_frames;
  }
  if (count == 0) PassTooLong();
  Show();
  return count;
}

template <typename Flows>
uint32_t MemoryQueuePair::PollInto(const Flows& flows, typename Flows::Out* out, uint32_t most) {
  using Taken = completion::KnownFlows::Taken;
  uint32_t count = 0;
  for (; most != 0 && HasFrame(); --most) {
    const nic::RxFrame& rx = received_.front();
    const bool whole = rx.buffer->length >= completion::KnownFlows::kLeastFrameBytes;
    if (rx.flags != kVerified || !whole) break;
    Taken taken = Taken::kCompletion;
    if (!flows.Write(rx.buffer, rx.buffer->data, rx.buffer->length, rx.hw_clock, out + count)) {
      taken = flows.AskOthers(rx.buffer, rx.buffer->data, rx.buffer->length, rx.hw_clock,
                              out + count);
    }
    if (taken == Taken::kNot) break;
    count += taken != Taken::kSilently;
    received_.pop_front();
    ++counters_.rx_frames;
    if (taken == Taken::kFirst) break;
  }
  Show();
  return count;
}

uint32_t MemoryQueuePair::PollKnown(const completion::KnownFlows& flows,
                                    completion::Completion* out, uint32_t most) {
  const uint32_t taken = PollInto(flows, out, most);
  return taken | (taken == most || received_.empty() ? when_all_taken_ : kRest);
}

uint32_t MemoryQueuePair::PollLinks(const completion::LinkFlows& flows,
                                    completion::LinkCompletion* out, uint32_t most) {
  return PollInto(flows, out, most);
}

packet::Buffer* MemoryQueuePair::TakeKnown(const completion::KnownFlows& flows,
                                           const udp::Endpoint* endpoint, size_t most) {
  if (!HasFrame()) return nullptr;
  const nic::RxFrame& rx = received_.front();
  packet::Buffer* const buffer = rx.buffer;
  const bool whole = buffer->length >= completion::KnownFlows::kLeastFrameBytes;
  if (rx.flags != kVerified || !whole) return nullptr;
  if (!flows.Take(endpoint, buffer, buffer->data, buffer->length, most)) return nullptr;
  received_.pop_front();
  ++counters_.rx_frames;
  Show();
  return buffer;
}

uint32_t MemoryQueuePair::TakeLowWater() {
  const uint32_t low = std::min(low_water_, posted());
  low_water_ = posted();
  return low;
}

uint32_t MemoryQueuePair::Refill() {
  uint32_t count = 0;
  for (; posted_.size() < options_.receive_queue_frames; ++count) {
    packet::Buffer* buffer = pool_->Acquire();
    if (buffer == nullptr) {
      ++counters_.rx_refill_short;
      break;
    }
    posted_.push_back(buffer);
  }
  return count;
}

nic::TxStatus MemoryQueuePair::Post(const nic::TxFrame& frame) {
  TakeDirect();
  if (error_) return nic::TxStatus::kBroken;
  if (send_completions_due_ == options_.send_queue_frames) {
    ++counters_.tx_full;
    if (on_full != nullptr) on_full();
    return nic::TxStatus::kFull;
  }
  const bool in_wqe =
      frame.header_length + frame.payload_length <= capabilities_.max_inline_bytes;
  if (!in_wqe && frame.key == 0) {
    const uint32_t used = device_memory_used_ + frame.payload_length;
    if (used > capabilities_.device_memory_bytes) return nic::TxStatus::kTooLong;
    device_memory_used_ = used;
    ++counters_.tx_device_memory;
  }
  SentFrame sent{.flags = frame.flags};
  sent.bytes.assign(frame.header, frame.header + frame.header_length);
  sent.bytes.insert(sent.bytes.end(), frame.payload, frame.payload + frame.payload_length);
  ++counters_.tx_frames;
  ++posted_frames_;
  ++send_completions_due_;
  if (on_post != nullptr) on_post(sent);
  sent_.push_back(std::move(sent));
  if ((frame.flags & nic::kTxMore) == 0) visible_ = posted_frames_;
  AllowDirect();
  return nic::TxStatus::kPosted;
}

// The image: 64 bytes of header, then the flags of its frames.
void MemoryQueuePair::Prepare(const nic::TxHeader& header, nic::TxTemplate* flow) const {
  memcpy(flow->frame.image.data(), header.bytes, 64);
  base::StoreNative<uint16_t>(&flow->frame.image[64], header.flags);
  flow->header_length = header.length;
  flow->lengths = header.lengths;
  flow->max_payload_bytes = capabilities_.max_inline_bytes - header.length;
}

nic::TxStatus MemoryQueuePair::PostCopied(const nic::TxTemplate& flow, const uint8_t* payload,
                                          uint32_t payload_length, uint32_t flags) {
  std::array<uint8_t, 256> written = flow.frame.image;
  for (const nic::LengthField& field : flow.lengths) {
    base::StoreBe16(&written[field.at],
                    static_cast<uint16_t>(field.constant + payload_length));
  }
  const auto constant_flags = base::LoadNative<uint16_t>(&flow.frame.image[64]);
  return Post({.header = written.data(),
               .payload = payload,
               .header_length = flow.header_length,
               .payload_length = payload_length,
               .key = 0,
               .flags = static_cast<uint16_t>(constant_flags | flags)});
}

nic::TxBurst MemoryQueuePair::PostBurst(const nic::TxTemplate& flow,
                                        std::span<const nic::TxPayload> payloads) {
  nic::TxBurst posted{};
  for (const nic::TxPayload& payload : payloads) {
    if (payload.length > flow.max_payload_bytes) break;
    if (PostCopied(flow, payload.data, payload.length, nic::kTxMore) != nic::TxStatus::kPosted) {
      break;
    }
    ++posted.frames;
    posted.payload_bytes += payload.length;
  }
  return posted;
}

// The image: the flags of its posts, and the frame where a card has it.
bool MemoryQueuePair::PrepareFrame(const nic::TxFrame& frame, nic::TxPrepared* prepared) const {
  constexpr uint32_t kBlockBytes = 64, kLongest = 256 - kDirectFrameAt;
  const uint32_t bytes = frame.header_length + frame.payload_length;
  if (bytes > std::min(capabilities_.max_inline_bytes, kLongest)) return false;
  uint8_t* const at = &prepared->image[kDirectFrameAt];
  memcpy(at, frame.header, frame.header_length);
  memcpy(at + frame.header_length, frame.payload, frame.payload_length);
  base::StoreNative<uint16_t>(&prepared->image[kDirectFlagsAt], frame.flags);
  prepared->frame_at = kDirectFrameAt;
  prepared->header_bytes = frame.header_length;
  const uint32_t blocks = (kDirectFrameAt + bytes + kBlockBytes - 1) / kBlockBytes;
  prepared->step = {uint64_t{blocks} << nic::TxStep::kIndexShift, uint64_t{blocks} * kBlockBytes,
                    nic::TxStep::UnitsOf(blocks), bytes};
  prepared->direct_blocks = blocks <= 3 ? blocks : 0;
  return true;
}

nic::TxStatus MemoryQueuePair::PostPrepared(const nic::TxPrepared& prepared, uint32_t flags) {
  const auto constant_flags = base::LoadNative<uint16_t>(&prepared.image[kDirectFlagsAt]);
  const uint8_t* const header = &prepared.image[prepared.frame_at];
  return Post({.header = header,
               .payload = header + prepared.header_bytes,
               .header_length = prepared.header_bytes,
               .payload_length = prepared.frame_bytes() - prepared.header_bytes,
               .key = 0,
               .flags = static_cast<uint16_t>(constant_flags | flags)});
}

// Uncut: one frame with the pieces behind the header.
nic::TxStatus MemoryQueuePair::PostSegments(const nic::TxSegments& segments) {
  std::vector<uint8_t> payload;
  for (const nic::TxGather& piece : segments.payload) {
    payload.insert(payload.end(), piece.data, piece.data + piece.length);
  }
  if (payload.size() > capabilities_.max_segmented_bytes) return nic::TxStatus::kTooLong;
  const nic::TxStatus status = Post({.header = segments.header,
                                     .payload = payload.data(),
                                     .header_length = segments.header_length,
                                     .payload_length = static_cast<uint32_t>(payload.size()),
                                     .key = pool_key(),
                                     .flags = segments.flags});
  if (status == nic::TxStatus::kPosted) sent_.back().segment_bytes = segments.segment_bytes;
  return status;
}

// Of frames without tag and IP options; checksums are not looked at here.
std::vector<std::vector<uint8_t>> SentFrame::Cut() const {
  if (segment_bytes == 0) return {bytes};
  constexpr size_t kIpAt = 14, kTcpAt = kIpAt + 20;
  constexpr uint8_t kFinPsh = 0x09;
  const size_t header_bytes = kTcpAt + size_t{bytes[kTcpAt + 12]} / 16 * 4;
  std::vector<std::vector<uint8_t>> frames;
  for (size_t at = header_bytes; at < bytes.size(); at += segment_bytes) {
    const size_t length = std::min<size_t>(segment_bytes, bytes.size() - at);
    std::vector<uint8_t> frame(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(header_bytes));
    frame.insert(frame.end(), &bytes[at], &bytes[at] + length);
    base::StoreBe16(&frame[kIpAt + 2], static_cast<uint16_t>(frame.size() - kIpAt));
    base::StoreBe32(&frame[kTcpAt + 4], base::LoadBe32(&bytes[kTcpAt + 4]) +
                                            static_cast<uint32_t>(at - header_bytes));
    if (at + length < bytes.size()) frame[kTcpAt + 13] &= static_cast<uint8_t>(~kFinPsh);
    frames.push_back(std::move(frame));
  }
  return frames;
}

bool MemoryQueuePair::SignalLast() {
  if (visible_ == posted_frames_ || sent_.empty()) return false;
  sent_.back().flags |= nic::kTxSignal;
  return true;
}

void MemoryQueuePair::Flush() {
  TakeDirect();
  if (visible_ != posted_frames_) ++counters_.tx_doorbells;
  visible_ = posted_frames_;
  AllowDirect();
}

uint32_t MemoryQueuePair::PollSend(std::span<nic::TxCompletion> out) {
  TakeDirect();
  if (break_sends_ && !error_) {
    error_ = nic::QueueError{.syndrome = 2, .text = "local queue operation error"};
    send_completions_due_ = 0;
    return 0;
  }
  if (completes_when_polled) CompleteSends();
  uint32_t count = 0;
  for (; count < out.size() && !completions_.empty(); ++count) {
    out[count] = completions_.front();
    completions_.pop_front();
    send_completions_due_ = posted_frames_ - out[count].frames;
  }
  AllowDirect();
  return count;
}

void MemoryQueuePair::AcknowledgeEvents() {
  eventfd_t value;
  eventfd_read(fd_, &value);
}

class MemoryNic::MemoryRule final : public nic::Rule {
 public:
  MemoryRule(MemoryNic* nic, std::list<Installed>::iterator place) : nic_(nic), place_(place) {}
  ~MemoryRule() override {
    std::lock_guard lock(nic_->mutex_);
    nic_->rules_.erase(place_);
    nic_->least_rules_ = std::min(nic_->least_rules_, nic_->rules_.size());
  }

 private:
  MemoryNic* const nic_;
  const std::list<Installed>::iterator place_;
};

MemoryNic::MemoryNic(const Options& options)
    : options_(options), event_fd_(eventfd(0, EFD_NONBLOCK)) {
  capabilities_.max_inline_bytes = options.max_inline_bytes;
  capabilities_.max_segmented_bytes = options.max_segmented_bytes;
  capabilities_.device_memory_bytes = options.device_memory_bytes;
  capabilities_.transmit_checksum = options.transmit_checksum;
  capabilities_.receive_checksum = true;
  capabilities_.receive_timestamp = true;
  capabilities_.transmit_timestamp = true;
  capabilities_.receive_time = capabilities_.transmit_time = options.time;
  capabilities_.mtu = options.mtu;
  capabilities_.rate_limit = options.rate_limit;
  capabilities_.link_bits_per_second = 1'000'000'000;
  capabilities_.device = "memory_0 port 1";
  clock_ = {.multiplier = 1, .in_sync = true};
}

namespace {

bool Matches(const nic::FlowMatch& match, std::span<const uint8_t> frame) {
  const auto ethernet = wire::EthernetView::Parse(frame);
  if (!ethernet.ok() || ethernet->destination() != match.destination_mac) return false;
  const std::optional<wire::VlanTag> tag = ethernet->vlan();
  if (match.vlan_id && (!tag || tag->id != *match.vlan_id)) return false;
  const auto ip = wire::Ipv4View::Parse(ethernet->payload(), wire::ChecksumCheck::kTrusted);
  if (!ip.ok()) return !match.destination_ip && !match.protocol;
  if (match.destination_ip && ip->destination() != *match.destination_ip) return false;
  if (match.source_ip && ip->source() != *match.source_ip) return false;
  if (match.protocol && ip->protocol() != *match.protocol) return false;
  if (!match.destination_port && !match.source_port) return true;
  if (ip->IsFragment()) return false;
  const uint8_t* ports = ip->payload().data();
  const uint16_t to = base::LoadBe16(ports + 2) & match.destination_port_mask;
  return (!match.destination_port || to == *match.destination_port) &&
         (!match.source_port || base::LoadBe16(ports) == *match.source_port);
}

}  // namespace

int MemoryNic::Deliver(std::span<const uint8_t> frame, uint64_t hw_clock) {
  std::lock_guard lock(mutex_);
  // The first that keeps it for itself decides: rules behind it get nothing.
  uint16_t last = UINT16_MAX;
  for (const Installed& installed : rules_) {
    const nic::FlowRule& rule = installed.rule;
    if (!rule.share_with_kernel && Matches(rule.match, frame)) last = std::min(last, rule.priority);
  }
  std::vector<const nic::QueuePair*> got;
  for (const Installed& installed : rules_) {
    if (installed.rule.priority > last || !Matches(installed.rule.match, frame)) continue;
    if (std::find(got.begin(), got.end(), installed.queue) != got.end()) continue;
    got.push_back(installed.queue);
    static_cast<MemoryQueuePair*>(installed.queue)->Inject(frame, installed.rule.tag, hw_clock);
  }
  return static_cast<int>(got.size());
}

std::vector<nic::FlowRule> MemoryNic::rules() {
  std::lock_guard lock(mutex_);
  std::vector<nic::FlowRule> rules;
  for (const Installed& installed : rules_) rules.push_back(installed.rule);
  return rules;
}

std::pair<size_t, size_t> MemoryNic::TakeExtremesOfRules() {
  std::lock_guard lock(mutex_);
  return {std::exchange(least_rules_, rules_.size()), std::exchange(most_rules_, rules_.size())};
}

void MemoryNic::SetClock(const nic::ClockConversion& clock) {
  std::lock_guard lock(mutex_);
  clock_ = clock;
}

void MemoryNic::FailQueues(absl::Status status) {
  std::lock_guard lock(mutex_);
  queues_status_ = std::move(status);
}

void MemoryNic::SetCounters(const nic::PortCounters& counters) {
  std::lock_guard lock(mutex_);
  counters_ = counters;
}

void MemoryNic::PushEvent(nic::PortEvent event) {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
  removed_ |= event == nic::PortEvent::kDeviceRemoved;
  eventfd_write(event_fd_, 1);
}

absl::StatusOr<std::unique_ptr<nic::Registration>> MemoryNic::Register(void*, size_t) {
  return std::make_unique<CountedRegistration>(registered_);
}

absl::StatusOr<std::unique_ptr<nic::QueuePair>> MemoryNic::CreateQueuePair(
    const nic::QueuePairOptions& options, packet::BufferPool* pool) {
  if (before_queues != nullptr) before_queues();
  {
    std::lock_guard lock(mutex_);
    if (!queues_status_.ok()) return queues_status_;
  }
  nic::Capabilities got = capabilities_;
  got.send_queue_frames = options.send_queue_frames;
  got.receive_queue_frames = options.receive_queue_frames;
  auto queue = std::make_unique<MemoryQueuePair>(got, options, pool);
  queues_.push_back(queue.get());
  return queue;
}

absl::StatusOr<std::unique_ptr<nic::Rule>> MemoryNic::AddRule(const nic::FlowRule& rule,
                                                              nic::QueuePair* queue_pair) {
  std::lock_guard lock(mutex_);
  if (rule.share_with_kernel && !options_.share_with_kernel) {
    return absl::UnimplementedError("add rule: DONT_TRAP asked, the device refuses it");
  }
  for (const Installed& installed : rules_) {
    // Only a tagged rule can be refused: the others need no look.
    if (rule.tag == 0) break;
    if (installed.rule.match == rule.match && installed.rule.tag != rule.tag) {
      return absl::AlreadyExistsError("add rule: an equal match has another tag");
    }
  }
  if (rules_.size() == options_.max_rules) {
    return absl::ResourceExhaustedError("add rule: the device's table is full");
  }
  if (rules_.size() >= options_.working_rules) {
    return absl::InternalError("add rule: the device failed");
  }
  rules_.push_back({rule, queue_pair});
  most_rules_ = std::max(most_rules_, rules_.size());
  return std::make_unique<MemoryRule>(this, std::prev(rules_.end()));
}

nic::DeviceClock MemoryNic::SampleClock(const std::function<int64_t()>&) {
  std::lock_guard lock(mutex_);
  return {.host = clock_, .ptp = {}};
}

absl::StatusOr<nic::PortCounters> MemoryNic::ReadPortCounters() {
  std::lock_guard lock(mutex_);
  return counters_;
}

std::optional<nic::PortEvent> MemoryNic::PollEvent() {
  std::lock_guard lock(mutex_);
  ++event_polls_;
  eventfd_t value;
  if (!removed_) eventfd_read(event_fd_, &value);
  if (events_.empty()) return std::nullopt;
  const nic::PortEvent event = events_.front();
  events_.pop_front();
  return event;
}

}  // namespace xtreme::engine::testing
