// SPDX-License-Identifier: Apache-2.0
//
// TcpSettings, as the stack wants them. Threads: pure functions.

#ifndef XTREME_XTREME_ENGINE_TCP_OPTIONS_OF_H_
#define XTREME_XTREME_ENGINE_TCP_OPTIONS_OF_H_

#include <cstdint>

#include "stack/tcp/pcb_options.h"
#include "xtreme/engine/tcp_options.h"

namespace xtreme::engine {

// The first setting that is out of range; null when none is.
const char* WrongIn(const TcpSettings& settings);

// The most payload in a segment that is taken. `mtu`: of the interface, or of the route.
uint16_t MssOf(const TcpSettings& settings, uint32_t mtu);
// Everything, from the defaults on.
void FillOptions(const TcpSettings& settings, uint16_t mss, tcp::PcbOptions* options);

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_TCP_OPTIONS_OF_H_
