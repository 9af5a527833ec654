// SPDX-License-Identifier: Apache-2.0
//
// Where Debian's unmodified libibverbs and libmlx5 meet us instead of the kernel: their own calls
// to open, stat, ioctl, mmap, close and socket, and nobody else's, lead to one Boundary.
//
// Only the relocated call slots (GOT) of those libraries are changed. No symbol of the process is
// shadowed, so it works linked into a program, under the sanitizers, and preloaded. A call that the
// Boundary does not want goes where it would have gone.
// Limits: a static libibverbs and raw system calls are out of reach.
// Thread: any. The slots are process-wide and stay patched; the Boundary comes and goes.
// Spec: System V ABI AMD64 supplement, section 4.4 (relocation) and 5.2 (procedure linkage table).

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_HOOK_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_HOOK_H_

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace xtreme::connectx {

// Answers system calls in the kernel's own convention: a result, or -errno. Empty: not ours, ask
// the kernel. Implementations are called from whatever thread calls the libraries.
class Boundary {
 public:
  virtual ~Boundary() = default;

  virtual std::optional<int> Open(const char* path, int flags) = 0;
  virtual std::optional<int> Stat(const char* path, struct stat* out) = 0;
  virtual std::optional<int> Ioctl(int fd, unsigned long request, void* argument) = 0;
  // The address, or -errno in place of it.
  virtual std::optional<intptr_t> Mmap(void* address, size_t length, int protection, int flags,
                                       int fd, off_t offset) = 0;
  virtual std::optional<int> Socket(int domain, int type, int protocol) = 0;
  // `fd` is about to be closed; the real close follows.
  virtual void Close(int fd) = 0;
};

// Patches the libraries that are loaded now; called again it patches those loaded since. Returns
// how many call slots lead to us, 0 when no library was found.
int PatchCallSlots();

// From here on hooked calls ask `boundary`; null: they go to the kernel. The caller makes sure that
// no call is inside the old one.
void SetBoundary(Boundary* boundary);
// Null: none.
Boundary* CurrentBoundary();

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_HOOK_H_
