// SPDX-License-Identifier: Apache-2.0
//
// TcpPrepared: TCP as the protocol of prepared sends.
//
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_TCP_PREPARED_H_
#define XTREME_XTREME_ENGINE_TCP_PREPARED_H_

#include "xtreme/engine/prepared_owner.h"

namespace xtreme::engine {

class Tcp;

class TcpPrepared final : public PreparedOwner {
 public:
  explicit TcpPrepared(Tcp* tcp) : tcp_(tcp) {}

  void BuildPrepared(PreparedSend& prepared) override;
  SendResult PostPrepared(PreparedSend& prepared, const SendOptions& options) override;
  SendResult RefusePrepared(PreparedSend& prepared, SendResult reason) override;

 private:
  Tcp* const tcp_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_TCP_PREPARED_H_
