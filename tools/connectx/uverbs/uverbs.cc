// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/uverbs.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/mlx5-abi.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

namespace xtreme::connectx {
namespace {

constexpr std::string_view kDevicePrefix = "/dev/infiniband/uverbs";
constexpr std::string_view kOpen = "OPEN";
constexpr std::string_view kMmap = "MMAP";

// n of "/dev/infiniband/uverbs<n>".
std::optional<size_t> DeviceIndex(std::string_view path) {
  if (!path.starts_with(kDevicePrefix)) return std::nullopt;
  path.remove_prefix(kDevicePrefix.size());
  size_t index = 0;
  const auto [end, error] = std::from_chars(path.data(), path.data() + path.size(), index);
  if (error != std::errc{} || end != path.data() + path.size()) return std::nullopt;
  return index;
}

bool EndsAnObject(std::string_view command) {
  return command.starts_with("DESTROY_") || command.starts_with("FREE_");
}

}  // namespace

Uverbs::Uverbs(std::vector<Port> ports, DeviceObserver* observer, std::function<void()> on_open)
    : ports_(std::move(ports)), observer_(observer), on_open_(std::move(on_open)) {}

std::optional<int> Uverbs::Open(const char* path, int flags) {
  const std::optional<size_t> index = DeviceIndex(path);
  if (!index) return std::nullopt;
  // The provider was loaded after us: this is the first we see of it.
  PatchCallSlots();
  if (on_open_ != nullptr) on_open_();
  const std::lock_guard lock(mutex_);
  if (*index >= ports_.size()) return -ENOENT;
  if (const int error = PlannedFailure(kOpen); error != 0) return -error;
  const int fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/dev/null", flags, 0));
  if (fd < 0) return -errno;
  const Port& port = ports_[*index];
  if (port.device->removed()) {
    ::syscall(SYS_close, fd);
    return -ENXIO;
  }
  contexts_[fd] = {.port = &port,
                   .context = std::make_unique<Context>(port.device, port.identity,
                                                        &pinned_pages_)};
  return fd;
}

std::optional<int> Uverbs::Stat(const char* path, struct stat* out) {
  const std::optional<size_t> index = DeviceIndex(path);
  if (!index) return std::nullopt;
  if (*index >= ports_.size()) return -ENOENT;
  return ::stat("/dev/null", out) == 0 ? 0 : -errno;
}

std::optional<int> Uverbs::Ioctl(int fd, unsigned long request, void* argument) {
  const std::lock_guard lock(mutex_);
  const auto opened = contexts_.find(fd);
  if (opened == contexts_.end()) return std::nullopt;
  if (request != RDMA_VERBS_IOCTL) return -ENOTTY;
  // As the kernel once it has torn a pulled device from its users.
  if (opened->second.port->device->removed()) return -EIO;
  const int error = Run(*opened->second.context, argument);
  if (observer_ != nullptr) observer_->OnCommand();
  return -error;
}

int Uverbs::Run(Context& context, void* argument) {
  const std::optional<VerbsCall> call = VerbsCall::ParseArgument(argument);
  if (!call) return EINVAL;
  int error = 0;
  const Command* command = FindCommand(*call, &error);
  if (command == nullptr) return error;
  error = PlannedFailure(command->name);
  return error != 0 ? error : command->answer(context, *call);
}

std::optional<intptr_t> Uverbs::Mmap(void* address, size_t length, int protection, int flags,
                                     int fd, off_t offset) {
  const std::lock_guard lock(mutex_);
  const auto opened = contexts_.find(fd);
  if (opened == contexts_.end()) return std::nullopt;
  if (const int error = PlannedFailure(kMmap); error != 0) return -error;
  if (opened->second.port->device->removed()) return -EIO;
  const auto what = MmapOffset::Parse(static_cast<uint64_t>(offset));
  Mapping mapping;
  const Opened& open = opened->second;
  const int error = ResolveMapping(*open.context, *open.port, what, &mapping);
  if (error != 0) return -error;
  if (length != mapping.bytes) return -EINVAL;
  if (!mapping.writable && (protection & PROT_WRITE) != 0) return -EPERM;
  // The C library's, so that a sanitizer learns of the mapping.
  void* const mapped = ::mmap(address, length, protection | PROT_READ, flags, mapping.fd,
                              static_cast<off_t>(mapping.at));
  if (mapped == MAP_FAILED) return -errno;
  const bool is_uar = what.command == MmapOffset::kUarCommand;
  if (observer_ != nullptr && is_uar) observer_->OnUarMapped(mapped, length);
  if (observer_ != nullptr && what.command == MLX5_IB_MMAP_CORE_CLOCK) {
    observer_->OnClockMapped(mapped, length);
  }
  return reinterpret_cast<intptr_t>(mapped);
}

int Uverbs::ResolveMapping(const Context& context, const Port& port, MmapOffset offset,
                           Mapping* mapping) const {
  switch (offset.command) {
    case MLX5_IB_MMAP_CORE_CLOCK:
      *mapping = {.fd = port.clock_pages->fd(), .at = ClockPages::kRegisterOffset};
      return 0;
    case MLX5_IB_MMAP_CLOCK_INFO:
      if (offset.index != MLX5_IB_CLOCK_INFO_V1) return EINVAL;
      if (!port.device->options().features.clock_info) return EOPNOTSUPP;
      *mapping = {.fd = port.clock_pages->fd(), .at = ClockPages::kParametersOffset};
      return 0;
    case MLX5_IB_MMAP_DEVICE_MEM:
      for (const auto& [handle, object] : context.device_memories) {
        if (PageIndex(object) != offset.index) continue;
        *mapping = {.fd = port.device->device_memory_fd(),
                    .at = object.memory.offset,
                    .bytes = MappedBytes(object),
                    .writable = true};
        return 0;
      }
      return EINVAL;
    case MmapOffset::kUarCommand:
      for (const auto& [handle, object] : context.uars) {
        if (object.uar.page_id != offset.index) continue;
        *mapping = {.fd = port.device->uar_fd(), .at = object.uar.offset, .writable = true};
        return 0;
      }
      return EINVAL;
    default: return EINVAL;
  }
}

std::optional<int> Uverbs::Socket(int domain, int, int protocol) {
  // Where the kernel has RDMA, its netlink would be asked for devices before our sysfs.
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA) return -EPROTONOSUPPORT;
  return std::nullopt;
}

void Uverbs::Close(int fd) {
  const std::lock_guard lock(mutex_);
  contexts_.erase(fd);
  for (auto& [context_fd, opened] : contexts_) {
    opened.context->completion_channels.erase(fd);
  }
}

void Uverbs::Detach() {
  const std::lock_guard lock(mutex_);
  observer_ = nullptr;
}

void Uverbs::BeforeFork() {
  mutex_.lock();
  for (const Port& port : ports_) port.device->BeforeFork();
}

void Uverbs::AfterForkInParent() {
  for (const Port& port : ports_) port.device->AfterFork();
  mutex_.unlock();
}

void Uverbs::AfterForkInChild() {
  observer_ = nullptr;
  AfterForkInParent();
}

bool Uverbs::FailNext(std::string_view command, int error) {
  const auto names = CommandNames();
  const bool known = command == kOpen || command == kMmap ||
                     std::find(names.begin(), names.end(), command) != names.end();
  if (!known) return false;
  const std::lock_guard lock(mutex_);
  planned_failures_[std::string(command)] = error;
  return true;
}

void Uverbs::FailAfter(uint64_t calls, int error, bool spares_ends) {
  const std::lock_guard lock(mutex_);
  failure_after_ = {calls_ + calls, error, spares_ends};
}

uint64_t Uverbs::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::vector<std::string> Uverbs::last_calls() const {
  const std::lock_guard lock(mutex_);
  return {last_calls_.begin(), last_calls_.end()};
}

LiveObjects Uverbs::live_objects() const {
  const std::lock_guard lock(mutex_);
  LiveObjects live;
  for (const auto& [fd, opened] : contexts_) opened.context->CountObjects(live);
  return live;
}

int Uverbs::PlannedFailure(std::string_view command) {
  const uint64_t number = calls_++;
  if (last_calls_.size() == kLastCalls) last_calls_.pop_front();
  last_calls_.emplace_back(command);
  if (failure_after_ && number >= failure_after_->call &&
      !(failure_after_->spares_ends && EndsAnObject(command))) {
    const int error = failure_after_->error;
    failure_after_.reset();
    return error;
  }
  const auto planned = planned_failures_.find(command);
  if (planned == planned_failures_.end()) return 0;
  const int error = planned->second;
  planned_failures_.erase(planned);
  return error;
}

}  // namespace xtreme::connectx
