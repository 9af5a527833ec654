// SPDX-License-Identifier: Apache-2.0
//
// The kernel as the verbs libraries see it: /dev/infiniband/uverbs<n>, its ioctls and its mappings,
// answered from software devices.
//
// Invariant: one lock around all control calls, and nothing of a context is left when its
// descriptor is closed. A descriptor is /dev/null opened anew: a real character device with nothing
// behind it.
// Thread: any. The device's own threads never take the lock.
// Spec: commands in commands.h, mapping offsets in mmap_offset.h.

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_UVERBS_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_UVERBS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/connectx/uverbs/clock_pages.h"
#include "tools/connectx/uverbs/commands.h"
#include "tools/connectx/uverbs/context.h"
#include "tools/connectx/uverbs/hook.h"
#include "tools/connectx/uverbs/mmap_offset.h"

namespace xtreme::connectx {

// Is told what a sleeping device would otherwise not notice. Called with the boundary's lock held.
class DeviceObserver {
 public:
  virtual ~DeviceObserver() = default;
  virtual void OnUarMapped(void* address, size_t length) = 0;
  virtual void OnClockMapped(void* address, size_t length) = 0;
  // A command has changed something.
  virtual void OnCommand() = 0;
};

class Uverbs final : public Boundary {
 public:
  // One verbs device; all of it outlives the boundary.
  struct Port {
    Device* device = nullptr;
    const DeviceIdentity* identity = nullptr;
    const ClockPages* clock_pages = nullptr;
  };

  // `observer` may be null. `on_open` may be empty: it is called before each open of a device, by
  // the thread that opens it.
  Uverbs(std::vector<Port> ports, DeviceObserver* observer, std::function<void()> on_open = {});

  std::optional<int> Open(const char* path, int flags) override;
  std::optional<int> Stat(const char* path, struct stat* out) override;
  std::optional<int> Ioctl(int fd, unsigned long request, void* argument) override;
  std::optional<intptr_t> Mmap(void* address, size_t length, int protection, int flags, int fd,
                               off_t offset) override;
  std::optional<int> Socket(int domain, int type, int protocol) override;
  void Close(int fd) override;

  // From now on the observer is told nothing.
  void Detach();

  // Around fork(), in the thread that forks: no call is under way in between, here or in a device,
  // so that the child's copy answers calls. It has no observer: that one's thread is not there.
  void BeforeFork();
  void AfterForkInParent();
  void AfterForkInChild();

  // The next call named `command` fails with `error` and has no effect. Names are those of
  // CommandNames(), "OPEN" and "MMAP". False: there is no such name.
  bool FailNext(std::string_view command, int error);
  // The call after `calls` more of any kind fails with `error`, whatever it is.
  void FailAfter(uint64_t calls, int error, bool spares_ends);
  // Calls so far that FailAfter counts.
  uint64_t calls() const;
  // The names of the last kLastCalls of them, the oldest first.
  std::vector<std::string> last_calls() const;
  LiveObjects live_objects() const;

 private:
  // What the call named `command` must fail with; 0: nothing.
  int PlannedFailure(std::string_view command);
  int Run(Context& context, void* argument);
  // What a page offset stands for.
  struct Mapping {
    int fd = -1;
    uint64_t at = 0;
    uint64_t bytes = ClockPages::kPageBytes;
    bool writable = false;
  };
  // An errno, or 0 with what to map.
  int ResolveMapping(const Context& context, const Port& port, MmapOffset offset,
                     Mapping* mapping) const;

  struct Opened {
    const Port* port = nullptr;
    std::unique_ptr<Context> context;
  };

  const std::vector<Port> ports_;
  DeviceObserver* observer_;
  const std::function<void()> on_open_;
  mutable std::mutex mutex_;
  uint64_t pinned_pages_ = 0;       // By all contexts together.
  std::map<int, Opened> contexts_;  // By descriptor.
  std::map<std::string, int, std::less<>> planned_failures_;
  struct FailureAfter {
    uint64_t call;
    int error;
    bool spares_ends;
  };
  std::optional<FailureAfter> failure_after_;
  static constexpr size_t kLastCalls = 256;
  uint64_t calls_ = 0;
  std::deque<std::string> last_calls_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_UVERBS_H_
