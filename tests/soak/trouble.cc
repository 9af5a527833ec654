// SPDX-License-Identifier: Apache-2.0

#include "tests/soak/trouble.h"

#include "tools/connectx/wire/impairment.h"

namespace xtreme::soak {

bool Trouble::Step(int64_t now_ns) {
  for (size_t port = 0; port < wires_->size(); ++port) {
    if (pulled_until_ns_[port] <= now_ns) wires_->Plug(port, true);
  }
  if (now_ns < next_ns_) return false;
  next_ns_ = After(now_ns, 10, 120);
  switch (dice_.Below(10)) {
    case 0: Pull(now_ns); return false;
    case 1: deaf_until_ns_ = After(now_ns, 5, 150); return false;
    case 2: return true;
    case 3: Impair({}); return false;
    default: Impair(AnyImpairment()); return false;
  }
}

void Trouble::Impair(const connectx::Impairment& impairment) {
  spoils_ = impairment.corruption > 0;
  wires_->Impair(impairment);
}

connectx::Impairment Trouble::AnyImpairment() {
  const auto rate = [this](double most) {
    return dice_.OneIn(2) ? 0 : most * dice_.Below(1'000) / 1'000;
  };
  connectx::Impairment impairment;
  impairment.loss = rate(dice_.OneIn(4) ? 0.3 : 0.05);
  impairment.duplication = rate(0.05);
  impairment.corruption = rate(0.02);
  impairment.reordering = rate(0.1);
  impairment.reorder_hold_ns = dice_.Between(50'000, 2'000'000);
  if (dice_.OneIn(4)) impairment.jitter_ns = dice_.Between(10'000, 1'000'000);
  return impairment;
}

void Trouble::Pull(int64_t now_ns) {
  const size_t port = dice_.Below(static_cast<uint32_t>(wires_->size()));
  wires_->Plug(port, false);
  pulled_until_ns_[port] = After(now_ns, 5, 400);
}

void Trouble::End() {
  deaf_until_ns_ = 0;
  Impair({});
  for (size_t port = 0; port < wires_->size(); ++port) wires_->Plug(port, true);
}

}  // namespace xtreme::soak
