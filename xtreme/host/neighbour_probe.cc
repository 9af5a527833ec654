// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/neighbour_probe.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "stack/wire/arp.h"

namespace xtreme::host {
namespace {

// Offsets in the packet; a load past its end drops it.
constexpr uint32_t kOperationAt = 6;
constexpr uint32_t kSenderAt = 14;
constexpr uint32_t kTargetAt = 24;
constexpr uint32_t kReply = 2;

// Replies, and packets whose sender and target address are the same.
constexpr sock_filter kFilter[] = {
    BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kOperationAt),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kReply, 4, 0),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kSenderAt),
    BPF_STMT(BPF_MISC | BPF_TAX, 0),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kTargetAt),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, wire::kArpBytes),
    BPF_STMT(BPF_RET | BPF_K, 0),
};

int AttachFilter(int fd) {
  // The kernel copies it; the interface is not const.
  const sock_fprog program{.len = std::size(kFilter), .filter = const_cast<sock_filter*>(kFilter)};
  const int result = ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
  return result == 0 ? 0 : errno;
}

int BindTo(int fd, uint32_t ifindex) {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ARP);
  address.sll_ifindex = static_cast<int>(ifindex);
  const int result = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  return result == 0 ? 0 : errno;
}

}  // namespace

std::optional<NeighbourSighting> ParseSighting(uint32_t ifindex, std::span<const uint8_t> packet) {
  const auto arp = wire::ArpView::Parse(packet);
  if (!arp.ok()) return std::nullopt;
  const bool gratuitous = arp->sender() == arp->target();
  if (!gratuitous && arp->operation() != wire::ArpOperation::kReply) return std::nullopt;
  const wire::MacAddress mac = arp->sender_mac();
  if (!arp->sender().IsUnicastHost() || mac.IsZero() || mac.IsGroup()) return std::nullopt;
  return NeighbourSighting{ifindex, arp->sender(), mac, gratuitous};
}

absl::StatusOr<NeighbourProbe> NeighbourProbe::Open(uint32_t ifindex) {
  if (ifindex == 0) {
    return absl::InvalidArgumentError("watch ARP: interface 0 asked, one by its index offered");
  }
  const std::string action = absl::StrCat("watch ARP on interface ", ifindex);
  // Protocol 0: it receives nothing until the filter is in and bind() names the protocol.
  FileDescriptor fd(::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() && errno == EPERM) {
    return ErrnoStatus(EPERM, action + ": a packet socket needs CAP_NET_RAW");
  }
  if (!fd.valid()) return ErrnoStatus(errno, action);
  if (const int error = AttachFilter(fd.get()); error != 0) return ErrnoStatus(error, action);
  if (const int error = BindTo(fd.get(), ifindex); error != 0) return ErrnoStatus(error, action);
  return NeighbourProbe(ifindex, std::move(fd));
}

size_t NeighbourProbe::Poll(std::span<NeighbourSighting> sightings) {
  size_t count = 0;
  std::array<uint8_t, wire::kArpBytes> packet;
  for (size_t taken = 0; taken < sightings.size(); ++taken) {
    const ssize_t length = ::recv(fd(), packet.data(), packet.size(), 0);
    // EINTR, and ENETDOWN once after the interface went down, leave the next ones to be read.
    if (length < 0 && (errno == EINTR || errno == ENETDOWN)) continue;
    if (length < 0) break;
    const auto sighting =
        ParseSighting(ifindex_, std::span(packet).first(static_cast<size_t>(length)));
    ++(sighting ? counters_.sightings : counters_.ignored);
    if (sighting) sightings[count++] = *sighting;
  }
  return count;
}

}  // namespace xtreme::host
