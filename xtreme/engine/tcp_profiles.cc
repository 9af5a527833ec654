// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/tcp_profiles.h"

namespace xtreme::engine {

TcpProfiles::TcpProfiles() {
  for (uint32_t i = 0; i < kAtFirst; ++i) unused_.PushBack(Add());
}

// Of those that take many values.
uint64_t TcpProfiles::Key::Hash() const {
  const TcpSettings& s = *settings;
  uint64_t hash = uint64_t{s.receive_window_bytes} << 32 | s.send_queue_bytes;
  const auto mix = [&hash](uint64_t value) { hash = base::MixBits(hash) ^ value; };
  for (const base::Nanoseconds time :
       {s.keepalive_idle, s.keepalive_interval, s.user_timeout, s.min_rto, s.delayed_ack,
        s.connect_timeout, s.close_timeout, s.fin_wait_timeout}) {
    mix(static_cast<uint64_t>(time.count()));
  }
  mix(uint64_t{s.unsent_low_water_bytes} << 32 | s.window_clamp_bytes);
  mix(uint64_t{mss} << 32 | uint32_t{s.ttl} << 16 | s.tos);
  return base::MixBits(hash);
}

TcpProfile* TcpProfiles::FindOrMake(const Key& key) {
  if (TcpProfile* const found = by_settings_.Find(key)) return found;
  TcpProfile& made = unused_.empty() ? Add() : unused_.front();
  if (made.options.mss != 0) by_settings_.Erase({&made.settings, made.options.mss});
  made.settings = *key.settings;
  made.options = {};
  FillOptions(made.settings, key.mss, &made.options);
  by_settings_.Insert({&made.settings, key.mss}, &made);
  return &made;
}

// Of no settings yet.
TcpProfile& TcpProfiles::Add() {
  TcpProfile& added = profiles_.emplace_back();
  added.options.mss = 0;
  added.table = this;
  by_settings_.Reserve(profiles_.size());
  return added;
}

}  // namespace xtreme::engine
