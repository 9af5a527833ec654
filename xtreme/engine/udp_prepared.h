// SPDX-License-Identifier: Apache-2.0
//
// UdpPrepared: UDP as the protocol of prepared sends.
//
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_UDP_PREPARED_H_
#define XTREME_XTREME_ENGINE_UDP_PREPARED_H_

#include "xtreme/engine/prepared_owner.h"

namespace xtreme::engine {

class Udp;

class UdpPrepared final : public PreparedOwner {
 public:
  explicit UdpPrepared(Udp* udp) : udp_(udp) {}

  void BuildPrepared(PreparedSend& prepared) override;
  SendResult PostPrepared(PreparedSend& prepared, const SendOptions& options) override;
  SendResult RefusePrepared(PreparedSend& prepared, SendResult reason) override;

 private:
  Udp* const udp_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_UDP_PREPARED_H_
