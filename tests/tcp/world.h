// SPDX-License-Identifier: Apache-2.0
//
// World: two hosts with a TCP stack each, a link that impairs as a seed says, and a virtual clock.
//
// The invariant: everything follows from Options, the seed in it and the calls, so a failure is
// repeated by its seed. Frames are real ones, with checksums, parsed on arrival. A host sends by a
// queue of WQEs: payload is referred to until the WQE completes, and a full queue refuses.
// Units: nanoseconds, bytes; probabilities in one of 10,000.
#ifndef XTREME_TESTS_TCP_WORLD_H_
#define XTREME_TESTS_TCP_WORLD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <span>
#include <vector>

#include "stack/base/time.h"
#include "stack/packet/buffer_pool.h"
#include "stack/tcp/stack.h"

namespace xtreme::tcp::testing {

struct Impairments {
  uint32_t lose = 0;
  uint32_t duplicate = 0;
  uint32_t reorder = 0;  // delayed by up to `reorder_by` more
  uint32_t corrupt = 0;  // one bit
  base::Nanoseconds delay = base::Microseconds(50);
  base::Nanoseconds reorder_by = base::Microseconds(500);
  uint64_t bits_per_second = 0;  // 0: no limit
  uint32_t queue_frames = 0;     // that wait for it; more are dropped. 0: no limit
};

class World;

// One end of the link.
class Host {
 public:
  Host(World& world, int index, const Stack::Options& options, uint32_t send_queue);
  ~Host();

  void Receive(const std::vector<uint8_t>& frame);
  // Runs the events, calling `on_event` for each.
  void Drain();

  // Has one stack more, with a pool of its own, as a process has rings; frames go to the first.
  void AddStack(uint32_t buffers);
  // Moves a connection of stack() to stack `to`, which becomes stack() then; `moved` is called with
  // it, or null where it is not admitted, after `way`. Frames are steered there after `steering`
  // more; what comes before is passed on.
  void Move(Connection& connection, size_t to, base::Nanoseconds way, base::Nanoseconds steering,
            std::function<void(Connection*)> moved);

  Stack& stack() { return *places_[at_]->stack; }
  Stack& stack(size_t index) { return *places_[index]->stack; }
  packet::BufferPool& buffers() { return *places_[at_]->pool; }
  // Of all stacks.
  uint32_t free_buffers() const;
  base::Nanoseconds NextDeadline();
  void RunTimers();
  wire::Endpoint At(uint16_t port) const;
  LinkPath path() const;
  uint64_t bad_frames() const { return bad_frames_; }
  uint64_t runs() const { return runs_; }

  // Called for every event; returns nothing, owns `chain`.
  std::function<void(const Stack::Event&)> on_event;
  // Sees every frame that is sent, before the link does.
  std::function<void(const std::vector<uint8_t>&)> on_frame;
  // Refuses everything.
  bool deaf = false;

 private:
  // A stack, and where strays of what moved away from it go.
  struct Place final : Onward, Device {
    Sink::Taken Transmit(const OutgoingFrame& frame) override {
      return host->Transmit(frame, *stack);
    }
    uint32_t RunBytes(const Connection&) const override;
    Sink::Taken TransmitRun(const OutgoingFrame& first, std::span<Segment* const> run,
                            uint32_t segment_bytes) override {
      return host->TransmitRun(first, run, segment_bytes, *stack);
    }
    void PassOn(const wire::TcpFrame& frame, packet::Buffer* buffer, uint64_t stamp) override;

    Host* host = nullptr;
    size_t to = 0;
    packet::BufferPool::Handle pool;
    std::unique_ptr<Stack> stack;
  };

  Sink::Taken Transmit(const OutgoingFrame& frame, Stack& of);
  Sink::Taken TransmitRun(const OutgoingFrame& first, std::span<Segment* const> run,
                          uint32_t segment_bytes, Stack& of);
  void Drain(Stack& stack);
  void CompleteWqe(Stack& of, Connection* connection, Segment* segment);

  World& world_;
  const int index_;
  const Stack::Options options_;
  uint32_t send_queue_;
  uint32_t posted_ = 0;
  bool refused_ = false;
  uint64_t bad_frames_ = 0;
  std::vector<std::unique_ptr<Place>> places_;
  size_t at_ = 0;       // Of stack().
  size_t steered_ = 0;  // That gets the frames.
  uint64_t runs_ = 0;
};

class World {
 public:
  struct Options {
    uint64_t seed = 1;
    Impairments link;
    Stack::Options stack;
    uint32_t send_queue = 256;  // WQEs of each host
    uint32_t run_bytes = 0;     // of one send that a host's device cuts; 0: none
    base::Nanoseconds start = base::Seconds(1000);
    base::Nanoseconds wqe_delay = base::Microseconds(3);
  };
  explicit World(const Options& options);

  Host& host(int index) { return *hosts_[static_cast<size_t>(index)]; }
  base::Nanoseconds now() const { return now_; }
  const Options& options() const { return options_; }
  Impairments& link() { return options_.link; }

  // Runs until `done`, or the clock says `limit`. Returns done().
  bool RunUntil(const std::function<bool()>& done, base::Nanoseconds limit);
  // Calls `act` at `when`.
  void At(base::Nanoseconds when, std::function<void()> act);

  // For hosts.
  void Carry(int from, std::vector<uint8_t> frame);
  uint64_t frames() const { return frames_; }

 private:
  bool Chance(uint32_t of_ten_thousand);
  void CarryOne(int to, std::vector<uint8_t> frame);
  base::Nanoseconds NextDeadline();
  void RunTimers();

  struct Act {
    base::Nanoseconds when;
    uint64_t order;
    std::function<void()> act;
    bool operator>(const Act& other) const {
      return when != other.when ? when > other.when : order > other.order;
    }
  };

  Options options_;
  base::Nanoseconds now_;
  std::mt19937_64 random_;
  std::priority_queue<Act, std::vector<Act>, std::greater<>> acts_;
  uint64_t order_ = 0;
  uint64_t frames_ = 0;
  base::Nanoseconds line_free_[2];
  std::deque<base::Nanoseconds> departures_[2];  // of the frames that wait for the line
  std::unique_ptr<Host> hosts_[2];
};

// One direction's bytes: the one at `position` of the stream `stream`.
inline uint8_t ByteAt(uint64_t stream, uint64_t position) {
  const uint64_t mixed = (position / 8 + stream * 0x1000'0001) * 0x9E3779B97F4A7C15;
  return static_cast<uint8_t>((mixed ^ mixed >> 29) >> (8 * (position % 8)));
}

// One end of a connection that sends a stream of `to_send` bytes, checks the one it receives, and
// closes when it has sent everything (`closes_first`) or also when the peer has closed.
class Party {
 public:
  struct Plan {
    uint64_t stream = 1;       // what it sends
    uint64_t peer_stream = 2;  // what it expects
    uint64_t to_send = 0;
    uint32_t chunk = 1000;
    bool closes_first = true;
    base::Nanoseconds credit_delay;  // from delivery to credit
    bool want_done = false;
    bool in_place = false;  // by memory of its own, which the stack does not copy
  };
  Party(World& world, int host, const Plan& plan) : world_(world), host_(host), plan_(plan) {}

  void Attach(Connection* connection) { connection_ = connection; }
  void OnEvent(const Stack::Event& event);
  void Pump();

  Connection* connection() { return connection_; }
  bool established = false;
  bool peer_closed = false;
  bool terminated = false;
  int status = -1;
  uint64_t sent = 0;
  uint64_t received = 0;
  uint64_t wrong_bytes = 0;
  uint64_t out_of_order_events = 0;  // against the contract of completions
  uint64_t promised = 0;
  std::map<uint64_t, int> done;  // by cookie
  uint64_t cancelled = 0;

 private:
  void TakeBytes(const Stack::Event& event);
  void MaybeClose();

  World& world_;
  int host_;
  Plan plan_;
  Connection* connection_ = nullptr;
  bool shut_ = false;
  std::vector<std::vector<uint8_t>> memory_;  // sent in place
};

}  // namespace xtreme::tcp::testing

#endif  // XTREME_TESTS_TCP_WORLD_H_
