// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/port_lease.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "stack/wire/address_text.h"
#include "xtreme/host/sysctl.h"

namespace xtreme::host {
namespace {

constexpr uint8_t kMaxCountLog2 = 12;
// net.ipv4.ip_local_port_range as the kernel sets it, should /proc be hidden.
constexpr std::pair<uint32_t, uint32_t> kDefaultPortRange(32'768, 60'999);

std::string Name(PortProtocol protocol) { return protocol == PortProtocol::kUdp ? "UDP" : "TCP"; }

std::string Name(const PortRequest& request) {
  return absl::StrCat("lease ", Name(request.protocol), " ", wire::ToString(request.local),
                      request.reuse_address ? " with SO_REUSEADDR" : "",
                      request.reuse_port ? " with SO_REUSEPORT" : "");
}

// An integer of SOL_SOCKET.
int OptionOf(int fd, int option) {
  int value = 0;
  socklen_t length = sizeof(value);
  ::getsockopt(fd, SOL_SOCKET, option, &value, &length);
  return value;
}

// 0 or an errno, as all below.
int SetOption(int fd, int option, int value) {
  return ::setsockopt(fd, SOL_SOCKET, option, &value, sizeof(value)) == 0 ? 0 : errno;
}

// Classic BPF needs no privilege. It runs before a datagram is charged to the socket.
int AttachDropAll(int fd) {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{.len = 1, .filter = &drop};
  if (::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0) return errno;
  return SetOption(fd, SO_RCVBUF, 0);  // The kernel makes it the minimum.
}

int Configure(int fd, const PortRequest& request) {
  if (request.reuse_address) {
    if (const int error = SetOption(fd, SO_REUSEADDR, 1); error != 0) return error;
  }
  if (request.reuse_port) {
    if (const int error = SetOption(fd, SO_REUSEPORT, 1); error != 0) return error;
  }
  // Before bind: not even the first datagram gets in. A TCP socket that does not listen gets none.
  if (!request.deliver) return request.protocol == PortProtocol::kUdp ? AttachDropAll(fd) : 0;
  if (request.receive_buffer_bytes == 0) return 0;
  return SetOption(fd, SO_RCVBUF, static_cast<int>(request.receive_buffer_bytes));
}

int Bind(int fd, wire::Endpoint& local) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(local.address.value());
  address.sin_port = htons(local.port);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return errno;
  socklen_t length = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return errno;
  local.port = ntohs(address.sin_port);
  return 0;
}

// Every port from `first` on, or the status of the one that could not be had.
absl::StatusOr<std::vector<PortLease>> LeaseConsecutive(const PortBlock::Options& options,
                                                        uint32_t first, uint32_t count) {
  std::vector<PortLease> leases;
  leases.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    absl::StatusOr<PortLease> lease =
        PortLease::Acquire({.protocol = options.protocol,
                            .local = {options.address, static_cast<uint16_t>(first + i)}});
    if (!lease.ok()) return lease.status();
    leases.push_back(*std::move(lease));
  }
  return leases;
}

}  // namespace

absl::StatusOr<PortLease> PortLease::Acquire(const PortRequest& request) {
  const bool tcp = request.protocol == PortProtocol::kTcp;
  if (tcp && request.deliver) {
    return absl::InvalidArgumentError(
        absl::StrCat(Name(request), ": deliver asked, a slow path is offered for UDP only"));
  }
  const int type = (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK;
  FileDescriptor fd(::socket(AF_INET, type, 0));
  if (!fd.valid()) return ErrnoStatus(errno, Name(request));
  if (const int error = Configure(fd.get(), request); error != 0) {
    return ErrnoStatus(error, Name(request));
  }
  wire::Endpoint local = request.local;
  if (const int error = Bind(fd.get(), local); error != 0) {
    const absl::Status status = ErrnoStatus(error, Name(request));
    // A code of its own: the caller may try another port.
    return error == EADDRINUSE ? absl::AlreadyExistsError(status.message()) : status;
  }
  return PortLease(request.protocol, local, std::move(fd));
}

absl::StatusOr<PortLease> PortLease::Adopt(int bound_socket) {
  constexpr std::string_view kAction = "adopt the port of a bound socket";
  FileDescriptor fd(::fcntl(bound_socket, F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, kAction);
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return ErrnoStatus(errno, kAction);
  }
  const wire::Endpoint local{wire::Ipv4Address(ntohl(address.sin_addr.s_addr)),
                             ntohs(address.sin_port)};
  return PortLease(PortProtocol::kUdp, local, std::move(fd));
}

bool PortLease::EndListening() {
  if (OptionOf(fd_.get(), SO_ACCEPTCONN) == 0) return fd_.valid();
  const int reuse = OptionOf(fd_.get(), SO_REUSEADDR);
  fd_ = FileDescriptor();
  absl::StatusOr<PortLease> silent = Acquire(
      {.protocol = PortProtocol::kTcp, .local = local_, .reuse_address = reuse != 0});
  if (silent.ok()) fd_ = std::move(silent->fd_);
  return silent.ok();
}

absl::StatusOr<PortBlock> PortBlock::Acquire(const Options& options) {
  if (options.count_log2 > kMaxCountLog2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lease a block of ports: 2^", int{options.count_log2}, " asked, at most 2^12 offered"));
  }
  const auto [low, high] =
      ReadSysctlPair("net/ipv4/ip_local_port_range").value_or(kDefaultPortRange);
  const uint32_t count = 1u << options.count_log2;
  const uint32_t first_block = (low + count - 1) / count;
  const uint32_t end_block = (high + 1) / count;
  const uint32_t blocks = end_block > first_block ? end_block - first_block : 0;
  const uint32_t start = options.seed ? *options.seed : std::random_device()();
  for (uint32_t i = 0; i < blocks; ++i) {
    const uint32_t block = first_block + (start % blocks + i) % blocks;
    absl::StatusOr<std::vector<PortLease>> leases = LeaseConsecutive(options, block * count, count);
    if (leases.ok()) return PortBlock(*std::move(leases));
    if (!absl::IsAlreadyExists(leases.status())) return leases.status();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "lease ", count, " consecutive ", Name(options.protocol), " ports of ",
      wire::ToString(options.address), ": no aligned block of ", low, " to ", high, " is free"));
}

PortBlock::PortBlock(std::vector<PortLease> leases) : leases_(std::move(leases)) {
  for (const PortLease& lease : leases_) free_.push_back(lease.local().port);
}

std::optional<uint16_t> PortBlock::Take() {
  if (free_.empty()) return std::nullopt;
  const uint16_t port = free_.front();
  free_.pop_front();
  return port;
}

}  // namespace xtreme::host
