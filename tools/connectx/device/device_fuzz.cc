// SPDX-License-Identifier: Apache-2.0
//
// Bytes of a program and bytes of a wire against one device: whatever stands in send ring, receive
// ring and records, and whatever arrives, the device stays in the memory it was given.
//
// Input: 2 bytes send record, 2 bytes receive record, 8 WQEBBs, 4 receive WQEs, the rest a frame.

#include <endian.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "tools/connectx/device/device.h"
#include "tools/connectx/device/frame.h"
#include "tools/connectx/device/test_program.h"

namespace xtreme::connectx {
namespace {

// Takes up to `count` bytes off the front.
std::span<const uint8_t> Take(std::span<const uint8_t>* input, size_t count) {
  const std::span<const uint8_t> taken = input->first(std::min(count, input->size()));
  *input = input->subspan(taken.size());
  return taken;
}

void FuzzFrame(std::span<const uint8_t> bytes) {
  const Frame frame = ParseFrame(bytes);
  VerifyChecksums(frame);
  // Whatever it is, checksums that the device has written are right for the device.
  Bytes copy(bytes.begin(), bytes.end());
  FillChecksums(copy, true, true);
  const Frame filled = ParseFrame(copy);
  if (filled.l3 == Frame::L3::kIpv4 && filled.l3_whole && !VerifyChecksums(filled).l3_ok) {
    std::abort();
  }
}

void FuzzQueues(std::span<const uint8_t> input) {
  TestProgram program;
  auto cq = program.MakeCq(32);
  auto qp = program.MakeQp(cq.get(), cq.get());
  program.Steer(*qp);
  const auto records = Take(&input, 4);
  const auto sends = Take(&input, 8 * 64);
  const auto receives = Take(&input, 4 * 32);
  std::copy(sends.begin(), sends.end(), qp->send_ring());
  std::copy(receives.begin(), receives.end(), qp->receive_ring());
  // The first WQE gets past index and QPN, so that its segments are read.
  const uint32_t qpn_be = htobe32(qp->qpn);
  std::memset(qp->send_ring() + 1, 0, 2);
  std::memcpy(qp->send_ring() + 4, reinterpret_cast<const uint8_t*>(&qpn_be) + 1, 3);
  if (records.size() == 4) {
    qp->record()[1] = static_cast<uint32_t>(records[0] << 24 | records[1] << 16);
    qp->record()[0] = static_cast<uint32_t>(records[2] << 24 | records[3] << 16);
  }
  qp->Ring();
  program.wire.Arrive(Bytes(input.begin(), input.end()));
  program.Step();
  for (const Bytes& sent : program.wire.sent) {
    if (sent.size() < kMinFrameBytes || sent.size() > kMaxFrameBytes) std::abort();
  }
  while (cq->Poll().has_value()) {
  }
}

}  // namespace
}  // namespace xtreme::connectx

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  xtreme::connectx::FuzzFrame({bytes, size});
  xtreme::connectx::FuzzQueues({bytes, size});
  return 0;
}
