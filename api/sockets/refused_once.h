// SPDX-License-Identifier: Apache-2.0
//
// RefusedOnce: what a ring counts as refused of one send call, which tries as Socket::Blocking()
// does: once if it failed or waited, however often it tried; not what the ring took at the second
// look, before any wait. Threads: the call's, inside the ring's door.

#ifndef XTREME_API_SOCKETS_REFUSED_ONCE_H_
#define XTREME_API_SOCKETS_REFUSED_ONCE_H_

#include <cstdint>
#include <utility>

#include "xtreme/engine/completion.h"

namespace xtreme::sockets {

class RefusedOnce {
 public:
  // `protocol` has counted a try of `sender`'s.
  template <typename Protocol, typename Sender>
  void Refused(Protocol& protocol, Sender& sender, engine::SendResult reason) {
    ++tries_;
    if (counted_ != engine::SendResult::kSent) {
      protocol.Uncount(sender, reason);
    } else {
      counted_ = reason;
    }
  }
  // It took one, or a part.
  template <typename Protocol, typename Sender>
  void Taken(Protocol& protocol, Sender& sender) {
    if (tries_ != 1 || counted_ == engine::SendResult::kSent) [[likely]] return;
    protocol.Uncount(sender, std::exchange(counted_, engine::SendResult::kSent));
  }

 private:
  uint32_t tries_ = 0;  // That were refused.
  engine::SendResult counted_{};  // kSent: none.
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_REFUSED_ONCE_H_
