// SPDX-License-Identifier: Apache-2.0

#include "tools/dump/output.h"

#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tools/connectx/wire/capture_file.h"
#include "tools/dump/frame_filter.h"

namespace xtreme::dump {
namespace {

using connectx::CaptureFile;
using stats::FrameKind;

// What is unusual about a frame's time.
std::string_view AboutTime(const stats::TappedFrame& frame) {
  if (!frame.time_ns) return "without a time of its own";
  return frame.timed_by_device ? "sent then by the device" : "";
}

class TextOutput final : public Output {
 public:
  uint32_t AddRing(const stats::FrameReader& ring) override {
    names_.push_back(ring.interface());
    return static_cast<uint32_t>(names_.size() - 1);
  }
  void Add(uint32_t ring, const stats::TappedFrame& frame, int64_t time_ns) override {
    const char* way = frame.kind == FrameKind::kSent ? "out" : "in";
    const std::string_view about = AboutTime(frame);
    Line(time_ns, fmt::format("{} {} {}{}{}", names_[ring], way, Describe(frame),
                              about.empty() ? "" : ", ", about));
  }
  void Note(std::string_view text) override { Put(fmt::format("-- {}\n", text)); }
  bool Flush() override { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }
  int descriptor() const override { return STDOUT_FILENO; }

 private:
  // What cannot be written is told by Flush(): fmt::print() would throw.
  static void Put(const std::string& text) { std::fputs(text.c_str(), stdout); }
  static void Line(int64_t time_ns, const std::string& text) {
    constexpr int64_t kSecond = 1'000'000'000;
    const time_t seconds = time_ns / kSecond;
    tm local;
    localtime_r(&seconds, &local);
    Put(fmt::format("{:02}:{:02}:{:02}.{:09} {}\n", local.tm_hour, local.tm_min, local.tm_sec,
                    time_ns % kSecond, text));
  }

  std::vector<std::string> names_;
};

class PcapngOutput final : public Output {
 public:
  explicit PcapngOutput(std::shared_ptr<CaptureFile> file) : file_(std::move(file)) {}
  ~PcapngOutput() override { WriteNotes(); }

  uint32_t AddRing(const stats::FrameReader& ring) override {
    return file_->AddInterface(
        ring.interface(),
        fmt::format("{} {} ring {}; received frames have the device's time, sent ones too where "
                    "a comment says so, else that of posting",
                    ring.program(), ring.pid(), ring.ring()));
  }
  void Add(uint32_t ring, const stats::TappedFrame& frame, int64_t time_ns) override {
    const auto direction = frame.kind == FrameKind::kSent ? CaptureFile::Direction::kOut
                                                          : CaptureFile::Direction::kIn;
    if (const std::string_view about = AboutTime(frame); !about.empty()) Note(about);
    Write(ring, direction, frame.bytes, frame.frame_bytes, time_ns);
  }
  void Note(std::string_view text) override {
    if (notes_.size() + text.size() > kMostNotesBytes) WriteNotes();
    notes_ += (notes_.empty() ? "" : "\n") + std::string(text);
  }
  bool Flush() override {
    file_->Flush();
    return file_->dropped() == 0;
  }
  int descriptor() const override { return file_->descriptor(); }

 private:
  // A comment's length has 16 bits.
  static constexpr size_t kMostNotesBytes = 32 << 10;

  void WriteNotes() {
    if (!notes_.empty()) Write(0, CaptureFile::Direction::kIn, {}, 0, last_ns_);
  }
  void Write(uint32_t ring, CaptureFile::Direction direction, std::span<const uint8_t> bytes,
             uint32_t wire_bytes, int64_t time_ns) {
    file_->Add(ring, direction, bytes, time_ns, std::exchange(notes_, ""), wire_bytes);
    last_ns_ = time_ns;
  }

  const std::shared_ptr<CaptureFile> file_;
  std::string notes_;
  int64_t last_ns_ = 0;
};

}  // namespace

std::unique_ptr<Output> MakeTextOutput() { return std::make_unique<TextOutput>(); }

absl::StatusOr<std::unique_ptr<Output>> MakePcapngOutput(const std::string& path) {
  auto file = path == "-" ? CaptureFile::CreateOn(STDOUT_FILENO, "xtreme_dump")
                          : CaptureFile::Create(path, "xtreme_dump");
  if (!file.ok()) return file.status();
  return std::make_unique<PcapngOutput>(*std::move(file));
}

}  // namespace xtreme::dump
