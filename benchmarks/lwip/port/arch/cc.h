// SPDX-License-Identifier: Apache-2.0
//
// What lwIP asks of a compiler and a system: its defaults on Linux, and byte order by the compiler.

#ifndef XTREME_BENCHMARKS_LWIP_PORT_ARCH_CC_H_
#define XTREME_BENCHMARKS_LWIP_PORT_ARCH_CC_H_

#include <stdlib.h>

#define LWIP_PLATFORM_DIAG(message)
#define LWIP_PLATFORM_ASSERT(message) abort()
#define lwip_htons(value) __builtin_bswap16(value)
#define lwip_htonl(value) __builtin_bswap32(value)
#define LWIP_RAND() ((u32_t)rand())

#endif  // XTREME_BENCHMARKS_LWIP_PORT_ARCH_CC_H_
