// SPDX-License-Identifier: Apache-2.0
//
// The end of the program, at which what it sent leaves; and pthread_create: a thread that the
// engine or a library below it makes is theirs too, so that what it calls is the kernel's from its
// first call on.

#include <pthread.h>

#include <cstdlib>
#include <memory>

#include "api/preload/preload.h"

namespace xtreme::preload {
namespace {

struct Start {
  void* (*routine)(void*);
  void* argument;
};

void* RunBelow(void* start) {
  sockets::Passage::Forever();
  const std::unique_ptr<Start> own(static_cast<Start*>(start));
  return own->routine(own->argument);
}

void End() { Faces().End(); }

__attribute__((destructor)) void EndWithProcess() {
  FlushStreams();  // The C library would, when there is nothing to write to any more.
  End();
}

// quick_exit() runs no destructors, and writes nothing of streams.
__attribute__((constructor)) void EndWithQuickExit() { at_quick_exit(End); }

}  // namespace
}  // namespace xtreme::preload

XTREME_CALL int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                               void* (*routine)(void*), void* argument) noexcept {
  const auto& kernel = xtreme::preload::Kernel();
  if (!xtreme::sockets::Passage::Inside()) {
    return kernel.pthread_create(thread, attributes, routine, argument);
  }
  auto start = std::make_unique<xtreme::preload::Start>(xtreme::preload::Start{routine, argument});
  const int error = kernel.pthread_create(thread, attributes, &xtreme::preload::RunBelow,
                                          start.get());
  if (error == 0) [[maybe_unused]] auto* const of_thread = start.release();
  return error;
}

// Nothing else of ours may be called here: it ends handlers of signals, too, and children of
// vfork().
XTREME_CALL void _exit(int status) {
  if (auto* const faces = xtreme::sockets::Faces::IfMade()) faces->EndByProgress();
  xtreme::preload::Kernel()._exit(status);
  __builtin_unreachable();
}

XTREME_CALL void _Exit(int status) noexcept { _exit(status); }
