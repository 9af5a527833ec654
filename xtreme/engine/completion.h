// SPDX-License-Identifier: Apache-2.0
//
// Completions, for who knows the engine and not what stands below it.

#ifndef XTREME_XTREME_ENGINE_COMPLETION_H_
#define XTREME_XTREME_ENGINE_COMPLETION_H_

#include "xtreme/completion/completion.h"  // IWYU pragma: export

#endif  // XTREME_XTREME_ENGINE_COMPLETION_H_
