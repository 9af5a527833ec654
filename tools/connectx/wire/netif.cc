// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/netif.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tools/connectx/wire/decider.h"
#include "tools/connectx/wire/packet_ring.h"
#include "tools/connectx/wire/packet_sender.h"
#include "tools/connectx/wire/private_veth.h"

namespace xtreme::connectx {
namespace {

constexpr size_t kMaxVlanTags = 2;

// One thread writes each counter; others only read it.
void Increase(std::atomic<uint64_t>& counter, uint64_t n = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

ifreq RequestFor(const std::string& interface) {
  ifreq request{};
  std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
  return request;
}

absl::StatusOr<int> ReadMtu(const std::string& interface) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request = RequestFor(interface);
  const bool read = fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (read) return request.ifr_mtu;
  return absl::NotFoundError(absl::StrCat("interface ", interface, ": ", std::strerror(error)));
}

// How long a frame with `mtu` bytes of payload is, VLAN tags included.
size_t LongestFrame(std::span<const uint8_t> frame, size_t mtu) {
  size_t header = kEthernetHeaderBytes;
  for (size_t tags = 0; tags < kMaxVlanTags && frame.size() >= header; ++tags) {
    const int ethertype = frame[header - 2] << 8 | frame[header - 1];
    if (ethertype != 0x8100 && ethertype != 0x88a8) break;
    header += kVlanTagBytes;
  }
  return header + mtu;
}

}  // namespace

absl::Status NetworkInterface::Options::Validate() const {
  if (interface.empty() || interface.size() >= IFNAMSIZ ||
      interface.find_first_of("\"\\ \n") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("interface name: \"", interface, "\""));
  }
  if (ring_bytes < (256 << 10) || ring_bytes > (1 << 30)) {
    return absl::InvalidArgumentError(
        absl::StrCat("packet ring: ", ring_bytes, " bytes asked, 256 KB to 1 GB offered"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<NetworkInterface>> NetworkInterface::Open(const Options& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  absl::StatusOr<int> mtu = ReadMtu(options.interface);
  if (!mtu.ok()) return mtu.status();
  if (static_cast<size_t>(*mtu) > kMaxMtu) {
    return absl::InvalidArgumentError(
        absl::StrCat("MTU of ", options.interface, ": ", *mtu, ", at most ", kMaxMtu, " offered"));
  }
  absl::StatusOr<std::vector<std::string>> dead = PrivateVeth::RemoveAbandoned();
  if (!dead.ok()) return dead.status();
  for (const std::string& owner : *dead) Decider::RemoveTableOf(owner);

  std::unique_ptr<NetworkInterface> wire(
      new NetworkInterface(options, static_cast<uint32_t>(*mtu)));
  const int index = static_cast<int>(if_nametoindex(options.interface.c_str()));
  if (absl::Status status = wire->Build(index); !status.ok()) return status;
  return wire;
}

NetworkInterface::NetworkInterface(const Options& options, uint32_t mtu)
    : options_(options), mtu_(mtu) {
  time_of_day_.Look(TimeOfDay::Read());
}

NetworkInterface::~NetworkInterface() = default;

absl::Status NetworkInterface::Build(int interface_index) {
  auto sender = PacketSender::Create(interface_index);
  if (!sender.ok()) return sender.status();
  sender_ = std::move(*sender);

  auto veth = PrivateVeth::Create(options_.interface);
  if (!veth.ok()) return veth.status();
  veth_ = std::move(*veth);
  sender_->SetMark(SentMark(veth_->inlet_index()));

  auto ring = PacketRing::Create({
      .interface_index = veth_->inlet_index(),
      .max_frame_bytes = kEthernetHeaderBytes + kMaxVlanTags * kVlanTagBytes + mtu_.load(),
      .ring_bytes = options_.ring_bytes,
  });
  if (!ring.ok()) return ring.status();
  ring_ = std::move(*ring);

  auto decider = Decider::Create({
      .interface = options_.interface,
      .owner = veth_->owner(),
      .inlet_index = veth_->inlet_index(),
      .outlet = veth_->outlet(),
  });
  if (!decider.ok()) return decider.status();
  decider_ = std::move(*decider);
  return absl::OkStatus();
}

bool NetworkInterface::Transmit(std::span<const uint8_t> frame, int64_t) {
  return sender_->Add(frame);
}

void NetworkInterface::Flush() { sender_->Flush(); }

int NetworkInterface::fd() const { return ring_->fd(); }

bool NetworkInterface::Arm() { return ring_->Empty(); }

int NetworkInterface::Receive(FrameSink& sink, int max, int64_t) {
  int delivered = 0;
  if (ring_->Empty()) return delivered;
  time_of_day_.Look(TimeOfDay::Read());
  const uint32_t mtu = mtu_.load(std::memory_order_relaxed);
  while (delivered < max && !ring_->Empty()) {
    const PacketRing::Frame frame = ring_->Front();
    if (frame.length > LongestFrame(frame.bytes, mtu)) {
      Increase(rx_dropped_length_);
    } else if (frame.length > frame.bytes.size()) {
      rx_dropped_ring_.fetch_add(1);
    } else {
      sink.OnFrame(frame.bytes, time_of_day_.Unset(frame.time_ns));
      Increase(rx_frames_);
      Increase(rx_bytes_, frame.bytes.size());
      ++delivered;
    }
    ring_->Pop();
  }
  return delivered;
}

absl::Status NetworkInterface::AddRule(const WireRule& rule) {
  if (absl::Status status = sender_->AddMembership(rule); !status.ok()) return status;
  absl::Status status = decider_->AddRule(rule);
  if (!status.ok()) sender_->RemoveMembership(rule);
  return status;
}

absl::Status NetworkInterface::RemoveRule(const WireRule& rule) {
  absl::Status status = decider_->RemoveRule(rule);
  if (status.ok()) sender_->RemoveMembership(rule);
  return status;
}

bool NetworkInterface::up() const {
  ifreq request = RequestFor(options_.interface);
  if (ioctl(sender_->fd(), SIOCGIFFLAGS, &request) != 0) return false;
  return (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0;
}

uint32_t NetworkInterface::mtu() const {
  ifreq request = RequestFor(options_.interface);
  if (ioctl(sender_->fd(), SIOCGIFMTU, &request) == 0) {
    mtu_.store(static_cast<uint32_t>(std::min<size_t>(request.ifr_mtu, kMaxMtu)),
               std::memory_order_relaxed);
  }
  return mtu_.load(std::memory_order_relaxed);
}

std::vector<NamedCount> NetworkInterface::counters() const {
  const PacketSender::Counts& tx = sender_->counts();
  const uint32_t drops = ring_->TakeDrops();
  const uint64_t dropped_ring = rx_dropped_ring_.fetch_add(drops) + drops;
  return {
      {"tx_frames", tx.frames.load()},
      {"tx_bytes", tx.bytes.load()},
      {"tx_dropped_full", tx.dropped_full.load()},
      {"tx_dropped_down", tx.dropped_down.load()},
      {"tx_dropped_length", tx.dropped_length.load()},
      {"rx_frames", rx_frames_.load()},
      {"rx_bytes", rx_bytes_.load()},
      {"rx_dropped_length", rx_dropped_length_.load()},
      {"rx_dropped_ring", dropped_ring},
  };
}

}  // namespace xtreme::connectx
