// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/captured_wire.h"

#include <utility>

namespace xtreme::connectx {

using Direction = CaptureFile::Direction;

void CaptureTrack::OnLost(WireDirection direction, std::span<const uint8_t> frame,
                          int64_t time_ns) {
  if (direction == WireDirection::kTransmit) {
    lost_ = true;
  } else {
    file_->Add(interface_, Direction::kIn, frame, time_ns, "lost: fault injection");
  }
}

void CaptureTrack::OnReceived(std::span<const uint8_t> frame, int64_t time_ns) {
  file_->Add(interface_, Direction::kIn, frame, time_ns, {});
}

void CaptureTrack::OnTransmitted(std::span<const uint8_t> frame, int64_t time_ns, bool taken) {
  std::string_view comment;
  if (!taken) comment = "dropped: the wire refused it";
  if (std::exchange(lost_, false)) comment = "lost: fault injection";
  file_->Add(interface_, Direction::kOut, frame, time_ns, comment);
}

CapturedWire::CapturedWire(std::unique_ptr<Wire> inner, std::shared_ptr<CaptureTrack> track)
    : inner_(std::move(inner)), track_(std::move(track)) {}

CapturedWire::~CapturedWire() = default;

bool CapturedWire::Transmit(std::span<const uint8_t> frame, int64_t now_ns) {
  const bool taken = inner_->Transmit(frame, now_ns);
  track_->OnTransmitted(frame, now_ns, taken);
  return taken;
}

int CapturedWire::Receive(FrameSink& sink, int max, int64_t now_ns) {
  struct Recording final : FrameSink {
    Recording(FrameSink& sink, CaptureTrack& track) : sink(sink), track(track) {}
    void OnFrame(std::span<const uint8_t> frame, int64_t rx_time_ns) override {
      track.OnReceived(frame, rx_time_ns);
      sink.OnFrame(frame, rx_time_ns);
    }
    FrameSink& sink;
    CaptureTrack& track;
  } recording(sink, *track_);
  return inner_->Receive(recording, max, now_ns);
}

bool CapturedWire::Arm() {
  track_->file().Flush();
  return inner_->Arm();
}

std::vector<NamedCount> CapturedWire::counters() const {
  std::vector<NamedCount> counts = inner_->counters();
  counts.push_back({"capture_dropped", track_->file().dropped()});
  return counts;
}

DecoratedWire Decorate(std::unique_ptr<Wire> wire, Decoration decoration) {
  std::shared_ptr<CaptureTrack> track;
  if (decoration.capture != nullptr) {
    track = std::make_shared<CaptureTrack>(decoration.capture, decoration.name);
    decoration.faults.on_lost = [track](WireDirection direction, std::span<const uint8_t> frame,
                                        int64_t time_ns) {
      track->OnLost(direction, frame, time_ns);
    };
  }
  auto impaired = std::make_unique<ImpairedWire>(std::move(wire), decoration.faults);
  ImpairedWire* const faults = impaired.get();
  if (track == nullptr) return {std::move(impaired), faults};
  return {std::make_unique<CapturedWire>(std::move(impaired), std::move(track)), faults};
}

}  // namespace xtreme::connectx
