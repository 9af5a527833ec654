// SPDX-License-Identifier: Apache-2.0
//
// The devices at the paths where programs look without asking libibverbs: /sys/class/infiniband and
// /sys/class/infiniband_verbs, for what the program and its libraries open, list or ask about.
//
// Invariant: every other path, and these before ShowSysfs, are the kernel's; errors are too.
// Thread: ShowSysfs before main or in a child that has just forked; the rest any.

#ifndef XTREME_TOOLS_CONNECTX_PRELOAD_SYS_PATHS_H_
#define XTREME_TOOLS_CONNECTX_PRELOAD_SYS_PATHS_H_

#include <string>

namespace xtreme::connectx {

// From now on `root`/class/infiniband is what /sys/class/infiniband names. It may be called again.
void ShowSysfs(const std::string& root);

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_PRELOAD_SYS_PATHS_H_
