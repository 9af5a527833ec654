// SPDX-License-Identifier: Apache-2.0
//
// A wire whose frames are written to a capture file as the device sends and receives them, and
// Decorate, which puts faults and a capture on any wire.
//
// Invariant: every frame of the device is in the file once: one that was refused or lost on the way
// says so in its comment, and one that was lost before it reached the device is there too.
// Units: nanoseconds of the device's clock. Thread: as Wire says.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_CAPTURED_WIRE_H_
#define XTREME_TOOLS_CONNECTX_WIRE_CAPTURED_WIRE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/connectx/wire/capture_file.h"
#include "tools/connectx/wire/impairment.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

// One interface of a capture file, as a wire and its faults write to it.
class CaptureTrack {
 public:
  CaptureTrack(std::shared_ptr<CaptureFile> file, const std::string& name)
      : file_(std::move(file)), interface_(file_->AddInterface(name, "software ConnectX")) {}

  // An ImpairedWire's OnLost. A frame on its way out is written when Transmit returns.
  void OnLost(WireDirection direction, std::span<const uint8_t> frame, int64_t time_ns);
  void OnReceived(std::span<const uint8_t> frame, int64_t time_ns);
  // `taken`: what the wire's Transmit said.
  void OnTransmitted(std::span<const uint8_t> frame, int64_t time_ns, bool taken);

  CaptureFile& file() { return *file_; }

 private:
  const std::shared_ptr<CaptureFile> file_;
  const uint32_t interface_;
  bool lost_ = false;  // The frame that is being transmitted. Written by the transmitting thread.
};

class CapturedWire final : public Wire {
 public:
  CapturedWire(std::unique_ptr<Wire> inner, std::shared_ptr<CaptureTrack> track);
  ~CapturedWire() override;

  bool Transmit(std::span<const uint8_t> frame, int64_t now_ns) override;
  void Flush() override { inner_->Flush(); }
  int Receive(FrameSink& sink, int max, int64_t now_ns) override;
  int fd() const override { return inner_->fd(); }
  // A device that goes to sleep leaves a whole file behind.
  bool Arm() override;
  int64_t NextDeadline() const override { return inner_->NextDeadline(); }
  absl::Status AddRule(const WireRule& rule) override { return inner_->AddRule(rule); }
  absl::Status RemoveRule(const WireRule& rule) override { return inner_->RemoveRule(rule); }
  bool up() const override { return inner_->up(); }
  uint32_t mtu() const override { return inner_->mtu(); }
  // The inner wire's, and "capture_dropped", of the whole file.
  std::vector<NamedCount> counters() const override;

 private:
  const std::unique_ptr<Wire> inner_;
  const std::shared_ptr<CaptureTrack> track_;
};

struct Decoration {
  ImpairedWire::Options faults;
  std::shared_ptr<CaptureFile> capture;  // May be null.
  std::string name;                      // Of the interface in the capture.
};

struct DecoratedWire {
  std::unique_ptr<Wire> wire;
  ImpairedWire* faults;  // Inside `wire`.
};

// `decoration.faults` must be valid.
DecoratedWire Decorate(std::unique_ptr<Wire> wire, Decoration decoration);

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_CAPTURED_WIRE_H_
