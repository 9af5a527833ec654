// SPDX-License-Identifier: Apache-2.0
//
// A NIC in memory for tests: frames are injected and sent ones looked at, step by step.
//
// It steers by rules as the seam says: an equal match with another tag is refused, and every queue
// that holds a matching rule gets a copy, if no rule before it, by priority, keeps the frame.
// Nothing completes by itself: the test says when.
// Threads: rules the control thread, the rest the test's (the two do not meet: the test waits for
// the control thread before it injects).

#ifndef XTREME_XTREME_ENGINE_TESTING_MEMORY_NIC_H_
#define XTREME_XTREME_ENGINE_TESTING_MEMORY_NIC_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "xtreme/nic/nic.h"

namespace xtreme::engine::testing {

struct SentFrame {
  std::vector<uint8_t> bytes;
  uint16_t flags = 0;
  // Of payload, of TCP segments that the device cuts: `bytes` are a header and all of it. Else 0.
  uint32_t segment_bytes = 0;
  // As they reach the wire.
  std::vector<std::vector<uint8_t>> Cut() const;
};

class MemoryQueuePair final : public nic::QueuePair {
 public:
  MemoryQueuePair(const nic::Capabilities& capabilities, const nic::QueuePairOptions& options,
                  packet::BufferPool* pool);
  ~MemoryQueuePair() override;

  // --- The wire's side ---

  // False: no buffer is posted, the frame is lost.
  // `vlan`: the tag that was stripped, with kRxVlanStripped.
  bool Inject(std::span<const uint8_t> frame, uint32_t tag = 0, uint64_t hw_clock = 0,
              uint16_t flags = kVerified, uint16_t vlan = 0);
  // One that is longer than its buffer: that is lost with it, when it is polled for.
  void InjectTooLong() {
    received_.emplace_back();
    Show();
  }
  // Completes what was posted so far, at `hw_clock`; in error it is flushed.
  void CompleteSends(uint64_t hw_clock = 0);
  // Puts the queue pair in error, both queues: what was posted is flushed.
  void Break();
  // The same, found by whoever polls for send completions.
  void BreakSends() { break_sends_ = true; }
  // From here on frames that are built ahead may be posted without a call, as a card takes them:
  // the device sees what is written into its register once the record covers it.
  void TakeDirectPosts();
  // More than a post is due with the next one.
  void BeDue();
  // Whether a poll that takes all there was, or all it was asked for, of known flows says that a
  // refill is due and nothing else, from here on.
  void SayThatRefillsAreDue(bool says) { when_all_taken_ = says ? kRefill : kRest; }
  // Frames that were posted with what was due.
  uint32_t due_posts() const { return due_posts_; }
  // Frames posted so, or placed.
  uint32_t direct_posts() {
    TakeDirect();
    return direct_posts_;
  }

  // Those that ForgetSent() did not take.
  std::vector<SentFrame>& sent() {
    TakeDirect();
    return sent_;
  }
  // Forgets the first `frames` that were posted, of which a test may send more than memory holds.
  void ForgetSent(uint32_t frames) {
    sent_.erase(sent_.begin(), sent_.begin() + (frames - forgotten_));
    forgotten_ = frames;
  }
  uint32_t forgotten() const { return forgotten_; }
  // Called with each frame as it is posted, for who cannot look at sent() later.
  std::function<void(const SentFrame& frame)> on_post;
  // What is rung for has left by the time that somebody polls for it.
  bool completes_when_polled = false;
  // Called with each try to post that finds no room.
  std::function<void()> on_full;
  // Frames that were rung for.
  uint32_t visible() {
    TakeDirect();
    return visible_;
  }
  uint32_t ready() const { return static_cast<uint32_t>(received_.size()); }
  bool armed() const { return armed_; }

  // --- nic::QueuePair ---

  uint32_t PollReceive(std::span<nic::RxFrame> out) override;
  uint32_t PollKnown(const completion::KnownFlows& flows, completion::Completion* out,
                     uint32_t most) override;
  uint32_t PollLinks(const completion::LinkFlows& flows, completion::LinkCompletion* out,
                     uint32_t most) override;
  packet::Buffer* TakeKnown(const completion::KnownFlows& flows, const udp::Endpoint* endpoint,
                            size_t most) override;
  uint32_t Refill() override;
  uint32_t posted() const override { return static_cast<uint32_t>(posted_.size()); }
  uint32_t TakeLowWater() override;
  nic::TxStatus Post(const nic::TxFrame& frame) override;
  void Prepare(const nic::TxHeader& header, nic::TxTemplate* flow) const override;
  nic::TxStatus PostCopied(const nic::TxTemplate& flow, const uint8_t* payload,
                           uint32_t payload_length, uint32_t flags) override;
  bool HasRoomToStore(uint32_t payload_length) const override {
    return device_memory_used_ + payload_length <= capabilities_.device_memory_bytes;
  }
  nic::TxBurst PostBurst(const nic::TxTemplate& flow,
                         std::span<const nic::TxPayload> payloads) override;
  bool PrepareFrame(const nic::TxFrame& frame, nic::TxPrepared* prepared) const override;
  nic::TxStatus PostPrepared(const nic::TxPrepared& prepared, uint32_t flags) override;
  // After TakeDirectPosts().
  bool PostStreamOtherwise(const nic::StreamSegment& segment) override;
  bool PlaceStream(const nic::StreamSegment& segment) override;
  std::optional<uint32_t> PostGathered(const nic::StreamSegment& segment, uint32_t key,
                                       uint32_t flags) override;
  nic::TxStatus PostSegments(const nic::TxSegments& segments) override;
  bool SignalLast() override;
  void Flush() override;
  uint32_t posted_frames() const override {
    return posted_frames_ + static_cast<uint32_t>(front_->posted());
  }
  uint32_t PollSend(std::span<nic::TxCompletion> out) override;
  void Arm(bool) override { armed_ = true; }
  int fd() const override { return fd_; }
  void AcknowledgeEvents() override;
  const std::optional<nic::QueueError>& error() const override { return error_; }
  const nic::Capabilities& capabilities() const override { return capabilities_; }
  const nic::QueueCounters& counters() const override { return counters_; }
  uint32_t pool_key() const override { return 0x1234; }

  static constexpr uint16_t kVerified =
      nic::kRxIpChecksumOk | nic::kRxL4ChecksumOk | nic::kRxTimestamp;

 private:
  template <typename Flows>
  uint32_t PollInto(const Flows& flows, typename Flows::Out* out, uint32_t most);
  // A send queue of one WQE, and its register.
  struct Direct;

  void Show() { shown_ = received_.empty() && !error_ ? 0 : 1; }
  bool HasFrame() const { return !received_.empty() && received_.front().buffer != nullptr; }
  // When what came before was handed out.
  void PassTooLong() {
    for (; !received_.empty() && !HasFrame(); received_.pop_front()) {
      packet::BufferPool::Release(posted_.front());
      posted_.pop_front();
      ++counters_.rx_too_long;
    }
  }
  // Notices what was posted without a call.
  void TakeDirect();
  // Whether the next one may be.
  void AllowDirect();
  nic::TxStatus PostStream(const nic::StreamSegment& segment, uint32_t flags, uint32_t key = 0);

  const nic::Capabilities capabilities_;
  const nic::QueuePairOptions options_;
  packet::BufferPool* const pool_;
  std::deque<packet::Buffer*> posted_;
  std::deque<nic::RxFrame> received_;  // Without a buffer: too long, of the first that is posted.
  std::vector<SentFrame> sent_;
  std::deque<nic::TxCompletion> completions_;
  std::optional<nic::QueueError> error_;
  bool break_sends_ = false;
  nic::QueueCounters counters_;
  uint32_t low_water_ = ~uint32_t{0};  // Nothing has been taken yet.
  uint32_t device_memory_used_ = 0;  // Free again with the next completion.
  uint32_t posted_frames_ = 0;
  uint32_t completed_frames_ = 0;
  uint32_t visible_ = 0;
  uint32_t forgotten_ = 0;
  bool armed_ = false;
  int fd_ = -1;
  uint8_t shown_ = 0;
  uint32_t when_all_taken_ = kRest;
  std::unique_ptr<Direct> direct_;  // Null: every post is a call.
  uint32_t direct_posts_ = 0;
  uint32_t due_posts_ = 0;
};

class MemoryNic final : public nic::Nic {
 public:
  struct Options {
    uint32_t max_rules = 1'000;
    uint32_t working_rules = UINT32_MAX;  // The device fails at one more.
    uint32_t max_inline_bytes = 256;
    uint32_t max_segmented_bytes = 0;
    uint32_t device_memory_bytes = 0;
    uint32_t mtu = 1'500;
    bool transmit_checksum = true;
    nic::TimeSource time = nic::TimeSource::kCompletion;
    bool share_with_kernel = true;
    bool rate_limit = false;
    wire::MacAddress mac{{2, 0, 0, 0, 0, 1}};
  };

  explicit MemoryNic(const Options& options);

  // --- The wire's side ---

  // Steers a frame to every queue pair with a matching rule; how many got it.
  int Deliver(std::span<const uint8_t> frame, uint64_t hw_clock = 0);
  MemoryQueuePair* queue(size_t index) { return queues_[index]; }
  size_t queues() const { return queues_.size(); }
  // The rules as they stand.
  std::vector<nic::FlowRule> rules();
  // The least and the most of them that stood at a time since the last call.
  std::pair<size_t, size_t> TakeExtremesOfRules();
  void SetClock(const nic::ClockConversion& clock);
  // Regions that Register() was asked for and that were not given up since.
  int registered() const { return *registered_; }
  // What CreateQueuePair() says from here on.
  void FailQueues(absl::Status status);
  // Called by it first, on the thread that makes the queues.
  std::function<void()> before_queues;
  void SetCounters(const nic::PortCounters& counters);
  // After kDeviceRemoved event_fd() is ready for ever and gives nothing more, as the kernel has it.
  void PushEvent(nic::PortEvent event);
  // How often PollEvent() was called.
  uint64_t event_polls() const { return event_polls_; }

  // --- nic::Nic ---

  const nic::Capabilities& capabilities() const override { return capabilities_; }
  wire::MacAddress mac() const override { return options_.mac; }
  absl::StatusOr<std::unique_ptr<nic::Registration>> Register(void*, size_t) override;
  absl::StatusOr<std::unique_ptr<nic::QueuePair>> CreateQueuePair(
      const nic::QueuePairOptions& options, packet::BufferPool* pool) override;
  absl::Status SetRate(nic::QueuePair*, const nic::RateLimit&) override {
    if (options_.rate_limit) return absl::OkStatus();
    return absl::UnimplementedError("limit sends: memory has no rates");
  }
  absl::StatusOr<std::unique_ptr<nic::Rule>> AddRule(const nic::FlowRule& rule,
                                                     nic::QueuePair* queue_pair) override;
  nic::DeviceClock SampleClock(const std::function<int64_t()>& host_now_ns) override;
  absl::StatusOr<nic::PortCounters> ReadPortCounters() override;
  int event_fd() const override { return event_fd_; }
  std::optional<nic::PortEvent> PollEvent() override;

 private:
  struct Installed {
    nic::FlowRule rule;
    nic::QueuePair* queue;
  };
  class MemoryRule;

  const Options options_;
  nic::Capabilities capabilities_;
  std::vector<MemoryQueuePair*> queues_;
  int event_fd_ = -1;
  const std::shared_ptr<std::atomic<int>> registered_ = std::make_shared<std::atomic<int>>(0);
  std::mutex mutex_;
  std::list<Installed> rules_;                // Guarded by mutex_, as all below.
  size_t most_rules_ = 0;
  size_t least_rules_ = 0;
  absl::Status queues_status_;
  nic::ClockConversion clock_;
  nic::PortCounters counters_;
  std::deque<nic::PortEvent> events_;
  bool removed_ = false;
  std::atomic<uint64_t> event_polls_ = 0;
};

}  // namespace xtreme::engine::testing

#endif  // XTREME_XTREME_ENGINE_TESTING_MEMORY_NIC_H_
