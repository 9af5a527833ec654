// SPDX-License-Identifier: Apache-2.0
//
// How a send or fire is asked for, from the structure of the C API to the engine's.

#ifndef XTREME_API_NATIVE_SEND_OPTIONS_H_
#define XTREME_API_NATIVE_SEND_OPTIONS_H_

#include <cstdint>

#include "api/xtreme.h"
#include "xtreme/engine/send_flow.h"

namespace xtreme::api {

// Null: plain. Bits that are none of the flags are the engine's own, or a lane's.
inline engine::SendOptions ToEngine(const xtreme_send_options* options) {
  constexpr uint32_t kKnown = XTREME_NOW_OR_FAIL | XTREME_NO_DOORBELL | XTREME_WANT_DONE |
                              XTREME_WANT_WIRE | XTREME_WARM;
  if (options == nullptr) return {};
  return {.flags = options->flags & kKnown, .cookie = options->cookie};
}

}  // namespace xtreme::api

#endif  // XTREME_API_NATIVE_SEND_OPTIONS_H_
