// SPDX-License-Identifier: Apache-2.0
//
// PreparedOf<Udp>, PreparedOf<Tcp>: a protocol as the owner of prepared sends. `Protocol` names it
// its friend, and does the work in functions of the same names.
//
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_PREPARED_OF_H_
#define XTREME_XTREME_ENGINE_PREPARED_OF_H_

#include "xtreme/engine/prepared_owner.h"
#include "xtreme/engine/prepared_sends.h"

namespace xtreme::engine {

template <typename Protocol>
class PreparedOf final : public PreparedOwner {
 public:
  explicit PreparedOf(Protocol* protocol) : protocol_(protocol) {}

  void BuildPrepared(PreparedSend& prepared) override { protocol_->BuildPrepared(prepared); }
  SendResult PostPrepared(PreparedSend& prepared, const SendOptions& options) override {
    return protocol_->PostPrepared(prepared, options);
  }
  SendResult RefusePrepared(PreparedSend& prepared, SendResult reason) override {
    return protocol_->Refuse(*protocol_->Find(prepared.socket), reason);
  }
  bool Resolve(Completion* completion) override { return protocol_->Resolve(completion); }

  // As PreparedSend::fire, of a protocol that fires by itself; of a queue that keeps what it sends.
  static SendResult Fire(PreparedSend& prepared) {
    return Of(prepared).FirePrepared(prepared);
  }
  static SendResult FireKept(PreparedSend& prepared) {
    return Of(prepared).FireKept(prepared);
  }

 private:
  static Protocol& Of(const PreparedSend& prepared) {
    return *static_cast<PreparedOf*>(prepared.owner)->protocol_;
  }

  Protocol* const protocol_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_PREPARED_OF_H_
