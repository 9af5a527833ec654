// SPDX-License-Identifier: Apache-2.0
//
// Any sequence of frames, times and rates through an impaired cable: every frame is accounted for,
// none comes out before its time, and none longer or shorter than it went in.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

#include "tools/connectx/wire/frame_list.h"
#include "tools/connectx/wire/impairment.h"
#include "tools/connectx/wire/link.h"

namespace xtreme::connectx {
namespace {

constexpr size_t kOrderBytes = 4;

void Require(bool claim) {
  if (!claim) std::abort();
}

Impairment Rates(std::span<const uint8_t, 6> bytes) {
  return {.loss = bytes[0] / 255.0,
          .duplication = bytes[1] / 255.0,
          .corruption = bytes[2] / 255.0,
          .reordering = bytes[3] / 255.0,
          .delay_ns = bytes[4],
          .jitter_ns = bytes[5]};
}

void Run(std::span<const uint8_t> input) {
  auto link = MakeLink({.slots = 32});
  Require(link.ok());
  LinkEnd& far = *(*link)[1];
  const Impairment rates = Rates(input.first<6>());
  ImpairedWire wire(std::move((*link)[0]), {.seed = input[6], .receive = rates});

  FrameList list;
  int64_t now_ns = 0;
  uint64_t sent = 0;
  std::span<const uint8_t> orders = input.subspan(7);
  for (; orders.size() >= kOrderBytes; orders = orders.subspan(kOrderBytes)) {
    now_ns += orders[0];
    sent += far.Transmit(NumberedFrame(sent, 18 + orders[1]), now_ns);
    if (orders[2] % 16 == 0) wire.DropNext(WireDirection::kReceive, 1);
    if (orders[2] % 16 == 1) wire.DropFrame(WireDirection::kReceive, sent + orders[3] % 4);
    const size_t before = list.entries.size();
    const int max = orders[3] % 8;
    const int got = wire.Receive(list, max, now_ns);
    Require(got <= max && list.entries.size() == before + got);
    for (size_t i = before; i < list.entries.size(); ++i) {
      Require(list.entries[i].time_ns <= now_ns && list.entries[i].bytes.size() >= 18);
    }
  }
  now_ns += 1'000'000;
  do {
    wire.Receive(list, 64, now_ns);
    now_ns += 1'000'000;
  } while (wire.NextDeadline() != kNoDeadline || CountOf(wire, "rx_frames") < sent);
  Require(CountOf(wire, "impaired_rx_held") == 0);
  Require(list.entries.size() + CountOf(wire, "impaired_rx_lost") +
              CountOf(wire, "impaired_rx_dropped_asked") ==
          sent + CountOf(wire, "impaired_rx_duplicated"));
}

}  // namespace
}  // namespace xtreme::connectx

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size >= 7) xtreme::connectx::Run({bytes, size});
  return 0;
}
