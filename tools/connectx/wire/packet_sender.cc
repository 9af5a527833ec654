// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/packet_sender.h"

#include <linux/if_packet.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace xtreme::connectx {
namespace {

constexpr int kSendBufferBytes = 8 << 20;
// A card waits for its wire; so do we, but not so long that the device stands still.
constexpr int kFullWaitMs = 10;

constexpr MacAddress kWholeMac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

// One thread writes each counter; others only read it.
void Increase(std::atomic<uint64_t>& counter, uint64_t n = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PacketSender>> PacketSender::Create(int interface_index) {
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    const std::string message = absl::StrCat("open a packet socket: ", std::strerror(errno));
    if (errno == EPERM) return absl::PermissionDeniedError(message + " (needs CAP_NET_RAW)");
    return absl::InternalError(message);
  }
  std::unique_ptr<PacketSender> sender(new PacketSender(fd, interface_index));
  // Protocol 0: this socket receives nothing.
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_ifindex = interface_index;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return absl::InternalError(absl::StrCat("bind a packet socket: ", std::strerror(errno)));
  }
  // Beyond the system's limit where that is allowed, up to it elsewhere.
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &kSendBufferBytes, sizeof(int)) != 0) {
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(int));
  }
  return sender;
}

PacketSender::PacketSender(int fd, int interface_index)
    : fd_(fd),
      interface_index_(interface_index),
      frames_(std::make_unique_for_overwrite<uint8_t[]>(kBatch * kMaxFrameBytes)) {
  for (int i = 0; i < kBatch; ++i) {
    pieces_[i].iov_base = &frames_[i * kMaxFrameBytes];
    messages_[i].msg_hdr.msg_iov = &pieces_[i];
    messages_[i].msg_hdr.msg_iovlen = 1;
  }
}

PacketSender::~PacketSender() {
  Flush();
  close(fd_);
}

void PacketSender::SetMark(uint32_t mark) {
  (void)setsockopt(fd_, SOL_SOCKET, SO_MARK, &mark, sizeof mark);
}

bool PacketSender::Add(std::span<const uint8_t> frame) {
  if (frame.size() < kEthernetHeaderBytes || frame.size() > kMaxFrameBytes) {
    Increase(counts_.dropped_length);
    return false;
  }
  std::memcpy(pieces_[held_].iov_base, frame.data(), frame.size());
  pieces_[held_].iov_len = frame.size();
  if (++held_ == kBatch) Flush();
  return true;
}

void PacketSender::Flush() {
  for (int first = 0; first < held_;) {
    const int sent = SendFrom(first);
    if (sent < 0) {
      CountDrop(errno);
      ++first;
      continue;
    }
    Increase(counts_.frames, sent);
    for (int i = first; i < first + sent; ++i) Increase(counts_.bytes, pieces_[i].iov_len);
    first += sent;
  }
  held_ = 0;
}

int PacketSender::SendFrom(int first) {
  const auto send = [&] {
    int sent = -1;
    do {
      sent = sendmmsg(fd_, &messages_[first], held_ - first, MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent;
  };
  const int sent = send();
  if (sent >= 0 || errno != EAGAIN) return sent;
  pollfd writable{.fd = fd_, .events = POLLOUT, .revents = 0};
  (void)poll(&writable, 1, kFullWaitMs);
  return send();
}

void PacketSender::CountDrop(int error) {
  if (error == EMSGSIZE || error == EINVAL) {
    Increase(counts_.dropped_length);
  } else if (error == EAGAIN || error == ENOBUFS) {
    Increase(counts_.dropped_full);
  } else {
    Increase(counts_.dropped_down);
  }
}

int PacketSender::ChangeMembership(const WireRule& rule, int option) {
  packet_mreq request{};
  request.mr_ifindex = interface_index_;
  if (rule.everything) {
    request.mr_type = PACKET_MR_PROMISC;
  } else if (rule.all_multicast) {
    request.mr_type = PACKET_MR_ALLMULTI;
  } else if (rule.dst_mac_mask == kWholeMac && rule.dst_mac != kWholeMac) {
    request.mr_type = (rule.dst_mac[0] & 1) != 0 ? PACKET_MR_MULTICAST : PACKET_MR_UNICAST;
    request.mr_alen = rule.dst_mac.size();
    std::copy(rule.dst_mac.begin(), rule.dst_mac.end(), request.mr_address);
  } else {
    return 0;  // It chooses among what the interface takes anyway.
  }
  return setsockopt(fd_, SOL_PACKET, option, &request, sizeof request);
}

absl::Status PacketSender::AddMembership(const WireRule& rule) {
  if (ChangeMembership(rule, PACKET_ADD_MEMBERSHIP) == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("have the interface's filter pass a rule's frames: ", std::strerror(errno)));
}

void PacketSender::RemoveMembership(const WireRule& rule) {
  (void)ChangeMembership(rule, PACKET_DROP_MEMBERSHIP);
}

}  // namespace xtreme::connectx
