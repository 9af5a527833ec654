// SPDX-License-Identifier: Apache-2.0
//
// As common.h, for tests. No source includes this file.
#ifndef XTREME_TOOLS_COMPILER_COMMON_TEST_H_
#define XTREME_TOOLS_COMPILER_COMMON_TEST_H_

#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "common.h"

#if __has_include(<gtest/gtest.h>)
#include <gtest/gtest.h>
#endif

#endif  // XTREME_TOOLS_COMPILER_COMMON_TEST_H_
