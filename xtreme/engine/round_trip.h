// SPDX-License-Identifier: Apache-2.0
//
// RoundTrip: an operation that comes back to its ring as the notice of what came of it.
//
// Invariant: one object for both ways, made and freed by the ring's owner, whose allocator finds
// its bytes again for the next; a closed ring's ends on the control thread.

#ifndef XTREME_XTREME_ENGINE_ROUND_TRIP_H_
#define XTREME_XTREME_ENGINE_ROUND_TRIP_H_

#include <memory>
#include <utility>

#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/mailbox.h"

namespace xtreme::engine {

// `Work` has Run(), for the control thread, which also lets go of what may only end there, and
// Arrive(Ring&), for the ring's owner.
template <typename Work>
class RoundTrip final : public Operation, public RingNotice {
 public:
  // Its work is filled in before it is started.
  explicit RoundTrip(std::shared_ptr<Mailbox> mailbox) : mailbox_(std::move(mailbox)) {}

  Work& work() { return work_; }
  void Run() override { work_.Run(); }
  void Pass(std::unique_ptr<Operation> self) override {
    const std::shared_ptr<Mailbox> mailbox = std::move(mailbox_);
    mailbox->Push(std::unique_ptr<RingNotice>(static_cast<RoundTrip*>(self.release())));
  }
  void Arrive(Ring& ring) override { work_.Arrive(ring); }

 private:
  std::shared_ptr<Mailbox> mailbox_;
  Work work_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_ROUND_TRIP_H_
