// SPDX-License-Identifier: Apache-2.0
//
// Counts what a thread allocates: a program that links this has its operator new replaced.

#ifndef XTREME_SAMPLES_RECEIVER_ALLOCATIONS_H_
#define XTREME_SAMPLES_RECEIVER_ALLOCATIONS_H_

#include <cstdint>

namespace receiver {

// Calls of operator new, in any form, by the calling thread so far.
uint64_t ThreadAllocations();

}  // namespace receiver

#endif  // XTREME_SAMPLES_RECEIVER_ALLOCATIONS_H_
