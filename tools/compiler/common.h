// SPDX-License-Identifier: Apache-2.0
//
// The headers of others that most sources here include, directly or through ours: what
// tools/compiler/gcc compiles once rather than with every source. No source includes this file.
#ifndef XTREME_TOOLS_COMPILER_COMMON_H_
#define XTREME_TOOLS_COMPILER_COMMON_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
#include <x86intrin.h>

#if __has_include("absl/status/statusor.h")
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#endif

#endif  // XTREME_TOOLS_COMPILER_COMMON_H_
