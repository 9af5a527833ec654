// SPDX-License-Identifier: Apache-2.0
//
// A wire that loses, repeats, reorders, delays and corrupts the frames of another one, each
// direction by rates of its own.
//
// Invariant: what happens depends on the seed, the rates, the frames' order and the times handed
// in, and on nothing else. Every frame draws the same number of random values, so changing one rate
// does not change what the other kinds hit. Units: rates are probabilities, 0 to 1; nanoseconds of
// the callers' clock, virtual or real. A held frame comes out at the first call with `now_ns` at or
// after its due time, stamped with the due time. Thread: as Wire says; locks inside, none held
// while a sink runs.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_IMPAIRMENT_H_
#define XTREME_TOOLS_CONNECTX_WIRE_IMPAIRMENT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

struct Impairment {
  double loss = 0;
  double duplication = 0;  // A second copy follows at once.
  double corruption = 0;   // One bit, anywhere in the frame, is flipped.
  double reordering = 0;   // The frame is held `reorder_hold_ns` longer; those behind it overtake.
  int64_t reorder_hold_ns = 100'000;
  int64_t delay_ns = 0;
  int64_t jitter_ns = 0;  // Up to so much more delay, evenly spread; jitter alone reorders nothing.

  // InvalidArgument names the field that is out of range.
  absl::Status Validate() const;

  friend bool operator==(const Impairment&, const Impairment&) = default;
};

enum class WireDirection { kTransmit, kReceive };

class ImpairedWire final : public Wire {
 public:
  struct Options {
    uint64_t seed = 1;
    Impairment transmit;
    Impairment receive;
    // Is told of each frame that is lost, by the thread that transmits or receives, with no lock
    // held. May be empty.
    std::function<void(WireDirection, std::span<const uint8_t> frame, int64_t time_ns)> on_lost;
  };

  // `options` must be valid. The inner wire ends with this one, and what is still held is lost.
  ImpairedWire(std::unique_ptr<Wire> inner, const Options& options);
  ~ImpairedWire() override;

  ImpairedWire(const ImpairedWire&) = delete;
  ImpairedWire& operator=(const ImpairedWire&) = delete;

  // True also for a frame that is then lost: a sender cannot tell.
  bool Transmit(std::span<const uint8_t> frame, int64_t now_ns) override;
  void Flush() override;
  // Also sends what was held on its way out and is due.
  int Receive(FrameSink& sink, int max, int64_t now_ns) override;
  int fd() const override { return inner_->fd(); }
  bool Arm() override { return inner_->Arm(); }
  int64_t NextDeadline() const override;
  absl::Status AddRule(const WireRule& rule) override { return inner_->AddRule(rule); }
  absl::Status RemoveRule(const WireRule& rule) override { return inner_->RemoveRule(rule); }
  bool up() const override { return connected() && inner_->up(); }
  uint32_t mtu() const override { return inner_->mtu(); }
  // The inner wire's, and "impaired_tx_lost", "impaired_rx_lost" and so on.
  std::vector<NamedCount> counters() const override;

  // Pulls the cable, or plugs it in again: meanwhile frames of both directions are lost, and the
  // port is down. Any thread.
  void SetConnected(bool connected) { connected_.store(connected, std::memory_order_release); }
  bool connected() const { return connected_.load(std::memory_order_acquire); }

  // From now on. Any thread.
  void SetImpairment(WireDirection direction, const Impairment& impairment);
  // Loses the next `count` frames, whatever the rates. Any thread.
  void DropNext(WireDirection direction, uint64_t count);
  // Loses frame `number`; a direction counts its frames from 0. Any thread.
  void DropFrame(WireDirection direction, uint64_t number);

  Wire& inner() { return *inner_; }

 private:
  class Lane;
  struct Counting;

  Lane& lane(WireDirection direction) const;
  // True: the frame goes on at once, as Lane::Admit says; a lost one is told of.
  bool Admit(WireDirection direction, std::span<const uint8_t>& frame, int64_t& time_ns,
             int64_t now_ns, std::vector<uint8_t>& spoilt);
  // True while the cable is pulled: the frame is lost, counted and told of.
  bool Unplugged(WireDirection direction, std::span<const uint8_t> frame, int64_t time_ns);
  // Sends the held frames that are due, with transmit_mutex_ held; true if there were any.
  bool TransmitDue(int64_t now_ns);
  void ReceiveDue(Counting& out, int max, int64_t now_ns);

  const std::unique_ptr<Wire> inner_;
  const decltype(Options::on_lost) on_lost_;
  std::atomic<bool> connected_{true};
  std::atomic<uint64_t> unplugged_[2] = {};  // Frames lost, by WireDirection.
  std::mutex transmit_mutex_;  // The inner wire's one caller of Transmit: our sender or receiver.
  const std::unique_ptr<Lane> tx_;
  const std::unique_ptr<Lane> rx_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_IMPAIRMENT_H_
