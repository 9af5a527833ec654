// SPDX-License-Identifier: Apache-2.0
//
// Completions as the engine's own words: what it hands out.

#ifndef XTREME_XTREME_ENGINE_COMPLETION_H_
#define XTREME_XTREME_ENGINE_COMPLETION_H_

#include "xtreme/completion/completion.h"

namespace xtreme::engine {

using completion::Clear;
using completion::Completion;
using completion::IpBytes;
using completion::Kind;
using completion::Layer;
using completion::RingEvent;
using completion::SendResult;
using enum completion::CompletionFlag;

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_COMPLETION_H_
