// SPDX-License-Identifier: Apache-2.0
//
// A member of a shared wire that writes what it likes into the shared file: the others survive it,
// hand out no frame of impossible length and go on once it stops.

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "tools/connectx/wire/frame_list.h"
#include "tools/connectx/wire/shared_wire.h"

namespace xtreme::connectx {
namespace {

constexpr uint32_t kPorts = 3;
constexpr size_t kOrderBytes = 8;

void Require(bool claim) {
  if (!claim) std::abort();
}

std::unique_ptr<SharedWire> Open(const std::string& segment) {
  auto wire = SharedWire::Open({.segment = segment, .ports = kPorts, .ring_bytes = 16 << 10});
  Require(wire.ok());
  return *std::move(wire);
}

void Drain(Wire& wire) {
  FrameList frames;
  for (int turn = 0; turn < 8; ++turn) wire.Receive(frames, 16, 0);
  for (const auto& each : frames.entries) {
    Require(each.bytes.size() >= 14 && each.bytes.size() <= kMaxFrameBytes);
  }
}

// Each order of the input writes four of its bytes at an offset, or has a wire do something.
void Run(std::span<const uint8_t> input) {
  const std::string segment = "/dev/shm/connectx-fuzz-" + std::to_string(::getpid());
  auto a = Open(segment);
  auto b = Open(segment);
  const int file = ::open((segment + "/segment").c_str(), O_RDWR | O_CLOEXEC);
  Require(file >= 0);
  for (; input.size() >= kOrderBytes; input = input.subspan(kOrderBytes)) {
    uint16_t word;
    std::memcpy(&word, &input[2], sizeof(word));
    // The ports, the learned addresses, the indices, and the first page of the first ring.
    const off_t at = 4096 + word % (20 << 10);
    Require(::pwrite(file, &input[4], 4, at) == 4);
    if (input[0] & 1) a->Transmit(NumberedFrame(1, 18 + input[1]), 0);
    if (input[0] & 2) b->Transmit(NumberedFrame(2, 18 + input[1]), 0);
    if (input[0] & 4) Drain(*a);
    if (input[0] & 8) Drain(*b);
    if (input[0] & 16) b->Arm();
    if (input[0] & 32) {
      b.reset();
      b = Open(segment);
    }
  }
  ::close(file);
  // Two new members understand each other, whatever is left.
  a.reset();
  b.reset();
  a = Open(segment);
  b = Open(segment);
  Require(a->Transmit(NumberedFrame(3), 0));
  FrameList frames;
  Require(b->Receive(frames, 16, 0) == 1 && NumberOf(frames.entries[0].bytes) == 3);
}

}  // namespace
}  // namespace xtreme::connectx

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  xtreme::connectx::Run({bytes, size});
  return 0;
}
