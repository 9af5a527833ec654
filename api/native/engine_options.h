// SPDX-License-Identifier: Apache-2.0
//
// What a ring is made of, from the C API's structure to the engine's, field for field.

#ifndef XTREME_API_NATIVE_ENGINE_OPTIONS_H_
#define XTREME_API_NATIVE_ENGINE_OPTIONS_H_

#include "api/xtreme.h"
#include "xtreme/engine/ring_options.h"

namespace xtreme::api {

// `c` is whole and in range (settings.h's Check).
engine::RingOptions EngineOptions(const xtreme_ring_options& c);

}  // namespace xtreme::api

#endif  // XTREME_API_NATIVE_ENGINE_OPTIONS_H_
