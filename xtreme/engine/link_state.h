// SPDX-License-Identifier: Apache-2.0
//
// LinkState: whether the ring's link works, from two witnesses: the device's port events and the
// kernel's interface (which also knows of a VLAN's or a bond's own state, and of "set down").
//
// Invariant: the link is up while both say so; each change is told once, whoever noticed it first.
// Removal is final. Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_LINK_STATE_H_
#define XTREME_XTREME_ENGINE_LINK_STATE_H_

#include "xtreme/engine/completion.h"

namespace xtreme::engine {

class LinkState {
 public:
  // As the kernel had it when the ring was opened. Down, that is news.
  explicit LinkState(bool kernel_up) : kernel_up_(kernel_up) {}

  bool up() const { return device_up_ && kernel_up_ && !removed_; }
  bool removed() const { return removed_; }

  // Each returns what is to be told: kLinkUp, kLinkDown, kRemoved or kNone.
  RingEvent Device(bool up) {
    device_up_ = up;
    return Change();
  }
  RingEvent Kernel(bool up) {
    kernel_up_ = up;
    return Change();
  }
  RingEvent Look() { return Change(); }
  RingEvent Remove() {
    if (removed_) return RingEvent::kNone;
    removed_ = true;
    return RingEvent::kRemoved;
  }

 private:
  RingEvent Change() {
    const bool up = device_up_ && kernel_up_;
    if (removed_ || up == told_up_) return RingEvent::kNone;
    told_up_ = up;
    return up ? RingEvent::kLinkUp : RingEvent::kLinkDown;
  }

  bool device_up_ = true;
  bool kernel_up_;
  bool told_up_ = true;
  bool removed_ = false;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_LINK_STATE_H_
