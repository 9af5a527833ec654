// SPDX-License-Identifier: Apache-2.0
//
// PreparedOwner: the protocol of a prepared send, which knows what its frame looks like.
//
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_PREPARED_OWNER_H_
#define XTREME_XTREME_ENGINE_PREPARED_OWNER_H_

#include "xtreme/engine/completion.h"

namespace xtreme::engine {

struct PreparedSend;
struct SendOptions;

class PreparedOwner {
 public:
  // Brings `frame` up to date if the world allows it to be sent at once; then built_for is the
  // ring's epoch.
  virtual void BuildPrepared(PreparedSend& prepared) = 0;
  // Posts it whatever it takes, but now: never QUEUED. Counts it.
  virtual SendResult PostPrepared(PreparedSend& prepared, const SendOptions& options) = 0;
  // Counts a refusal.
  virtual SendResult RefusePrepared(PreparedSend& prepared, SendResult reason) = 0;
  // Fills in the user data of its socket, as at hand-out. False: it is not to be handed out.
  virtual bool Resolve(Completion* completion) = 0;

 protected:
  ~PreparedOwner() = default;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_PREPARED_OWNER_H_
