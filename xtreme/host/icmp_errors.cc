// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/icmp_errors.h"

#include <linux/filter.h>
#include <linux/icmp.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "stack/wire/icmp.h"
#include "stack/wire/ipv4.h"

namespace xtreme::host {
namespace {

constexpr uint32_t BitOf(wire::IcmpType type) { return uint32_t{1} << static_cast<int>(type); }

constexpr uint32_t kWanted = BitOf(wire::IcmpType::kDestinationUnreachable) |
                             BitOf(wire::IcmpType::kTimeExceeded) |
                             BitOf(wire::IcmpType::kParameterProblem);

// Those that quote TCP: the protocol of the quoted header, behind the header in front and ICMP's.
constexpr uint32_t kProtocolAt = 9;
constexpr sock_filter kFilter[] = {
    BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
    BPF_STMT(BPF_LD | BPF_B | BPF_IND, wire::kIcmpErrorHeaderBytes + kProtocolAt),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, wire::kIpProtocolTcp, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
    BPF_STMT(BPF_RET | BPF_K, 0),
};

template <typename Value>
bool Set(int fd, int level, int option, const Value& value) {
  return ::setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

bool Configure(int fd, uint32_t ifindex) {
  const icmp_filter types{.data = ~kWanted};
  // The kernel copies it; the interface is not const.
  const sock_fprog program{.len = std::size(kFilter), .filter = const_cast<sock_filter*>(kFilter)};
  return Set(fd, SOL_RAW, ICMP_FILTER, types) &&
         Set(fd, SOL_SOCKET, SO_ATTACH_FILTER, program) &&
         Set(fd, SOL_SOCKET, SO_BINDTOIFINDEX, static_cast<int>(ifindex));
}

}  // namespace

std::optional<ip::SocketError> ParseIcmpError(std::span<const uint8_t> datagram, uint16_t vlan_id,
                                              IcmpRefusals* refusals) {
  const auto ip = wire::Ipv4View::Parse(datagram, wire::ChecksumCheck::kVerify);
  if (!ip.ok() || ip->IsFragment() || ip->protocol() != wire::kIpProtocolIcmp) {
    ++refusals->not_ip;
    return std::nullopt;
  }
  const auto icmp = wire::IcmpErrorView::Parse(ip->payload(), wire::ChecksumCheck::kVerify);
  if (!icmp.ok()) {
    ++(icmp.error() == wire::IcmpError::kChecksum ? refusals->checksum : refusals->malformed);
    return std::nullopt;
  }
  if (icmp->offending().protocol() != wire::kIpProtocolTcp) {
    ++refusals->malformed;
    return std::nullopt;
  }
  std::optional<ip::SocketError> error = ip::InterpretIcmpError(*icmp, vlan_id);
  refusals->no_meaning += !error.has_value();
  return error;
}

absl::StatusOr<IcmpErrors> IcmpErrors::Open(uint32_t ifindex) {
  if (ifindex == 0) {
    return absl::InvalidArgumentError("watch ICMP: interface 0 asked, one by its index offered");
  }
  const std::string action = absl::StrCat("watch ICMP on interface ", ifindex);
  FileDescriptor fd(::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_ICMP));
  if (!fd.valid() && errno == EPERM) {
    return ErrnoStatus(EPERM, action + ": a raw socket needs CAP_NET_RAW");
  }
  if (!fd.valid() || !Configure(fd.get(), ifindex)) return ErrnoStatus(errno, action);
  return IcmpErrors(std::move(fd));
}

size_t IcmpErrors::Poll(std::span<ip::SocketError> errors) {
  size_t count = 0;
  // RFC 1812 section 4.3.2.3: 576 bytes, though some quote all of what offended.
  std::array<uint8_t, 2048> datagram;
  for (size_t left = errors.size(); left > 0; --left) {
    const ssize_t length = ::recv(fd(), datagram.data(), datagram.size(), 0);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) break;
    const auto bytes = std::span(datagram).first(static_cast<size_t>(length));
    const auto error = ParseIcmpError(bytes, /*vlan_id=*/0, &refusals_);
    if (error) errors[count++] = *error;
  }
  return count;
}

IcmpRefusals IcmpErrors::TakeRefusals() {
  uint32_t memory[SK_MEMINFO_VARS] = {};
  socklen_t length = sizeof(memory);
  if (::getsockopt(fd(), SOL_SOCKET, SO_MEMINFO, memory, &length) == 0) {
    refusals_.lost += memory[SK_MEMINFO_DROPS] - std::exchange(dropped_, memory[SK_MEMINFO_DROPS]);
  }
  return std::exchange(refusals_, IcmpRefusals());
}

}  // namespace xtreme::host
