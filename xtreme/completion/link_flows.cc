// SPDX-License-Identifier: Apache-2.0

#include "xtreme/completion/link_flows.h"

#include "xtreme/completion/link_flows_write.h"

namespace xtreme::completion {

void LinkFlows::Forget() {
  for (uint32_t place = 0; place < KnownFlows::kEntries; ++place) {
    Entry& entry = entries_[place];
    entry = {};
    KnownFlows::MakeEmpty(place, entry.header.data());
  }
  any_ = false;
  followed_ = *changes_;
}

void LinkFlows::Learn(const uint8_t* frame, const Completion& form, udp::Endpoint* endpoint) {
  // Else what is learned before the next use would be forgotten then, for good: it is known.
  if (*changes_ != followed_) Forget();
  LinkCompletion link;
  if (!taker_.admit(taker_.context, form, &link)) return;
  link.seconds = seconds_;
  Entry& entry = entries_[KnownFlows::PlaceOf(frame)];
  base::Store32(entry.header.data(), base::Load32(frame + KnownFlows::kHeaderAt));
  entry.form = link;
  entry.endpoint = endpoint;
  any_ = true;
}

void LinkFlows::SetScale(const ClockScale& scale) {
  device_ = scale;
  Rescale();
}

void LinkFlows::SetTime(const Time& time) {
  told_ticks_ = time.ticks;
  good_for_ticks_ = time.good_for_ticks;
  if (second_ == time.second && into_second_ == time.into_second) return;
  second_ = time.second;
  into_second_ = time.into_second;
  Rescale();
}

// Without a clock all times are 0.
void LinkFlows::Rescale() {
  scale_ = device_;
  const bool none = device_.IsNone();
  if (!none) scale_.base_ns += into_second_;
  SetSeconds(none ? 0 : second_);
}

void LinkFlows::SetSeconds(int64_t seconds) {
  if (seconds == seconds_) return;
  seconds_ = seconds;
  for (Entry& entry : entries_) entry.form.seconds = seconds;
}

}  // namespace xtreme::completion
