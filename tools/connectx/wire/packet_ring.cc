// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/packet_ring.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xtreme::connectx {
namespace {

constexpr size_t kBlockBytes = 256 * 1024;
// What stands before the frame in a slot: the header, the address, and alignment.
constexpr size_t kSlotHeaderBytes = TPACKET_ALIGN(TPACKET2_HDRLEN + 16) + 16;
constexpr size_t kSlotAlignment = 64;
// For frames that do not fit a slot, beyond the system's limit where that is allowed.
constexpr int kReceiveBufferBytes = 8 << 20;

absl::Status FromErrno(const char* action) {
  const std::string message = absl::StrCat(action, ": ", std::strerror(errno));
  if (errno == EPERM || errno == EACCES) {
    return absl::PermissionDeniedError(absl::StrCat(message, " (needs CAP_NET_RAW)"));
  }
  if (errno == ENOMEM) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

// The word by which the kernel and we hand a slot to each other.
std::atomic_ref<__u32> Status(uint8_t* slot) {
  return std::atomic_ref<__u32>(reinterpret_cast<tpacket2_hdr*>(slot)->tp_status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PacketRing>> PacketRing::Create(const Options& options) {
  // Protocol 0: no frame comes before the ring is there and the socket is bound.
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return FromErrno("open a packet socket");
  std::unique_ptr<PacketRing> ring(new PacketRing(fd));
  if (absl::Status status = ring->Build(options); !status.ok()) return status;
  return ring;
}

PacketRing::~PacketRing() {
  if (ring_ != nullptr) munmap(ring_, ring_bytes_);
  close(fd_);
}

absl::Status PacketRing::Build(const Options& options) {
  const int version = TPACKET_V2;
  if (setsockopt(fd_, SOL_PACKET, PACKET_VERSION, &version, sizeof version) != 0) {
    return FromErrno("choose TPACKET_V2");
  }
  const int copies = 1;
  if (setsockopt(fd_, SOL_PACKET, PACKET_COPY_THRESH, &copies, sizeof copies) != 0) {
    return FromErrno("ask for copies of frames that are longer than a slot");
  }
  if (setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBufferBytes, sizeof(int)) != 0) {
    (void)setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes, sizeof(int));
  }
  const size_t wanted = kSlotHeaderBytes + options.max_frame_bytes;
  slot_bytes_ = (wanted + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  slots_per_block_ = kBlockBytes / slot_bytes_;
  const size_t blocks = (options.ring_bytes + kBlockBytes - 1) / kBlockBytes;
  slots_ = slots_per_block_ * blocks;
  const tpacket_req request{
      .tp_block_size = kBlockBytes,
      .tp_block_nr = static_cast<unsigned>(blocks),
      .tp_frame_size = static_cast<unsigned>(slot_bytes_),
      .tp_frame_nr = static_cast<unsigned>(slots_),
  };
  if (setsockopt(fd_, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0) {
    return FromErrno("make a packet ring");
  }
  ring_bytes_ = blocks * kBlockBytes;
  void* mapped = mmap(nullptr, ring_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (mapped == MAP_FAILED) return FromErrno("map a packet ring");
  ring_ = static_cast<uint8_t*>(mapped);

  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = options.interface_index;
  if (bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return FromErrno("bind a packet socket");
  }
  return absl::OkStatus();
}

uint8_t* PacketRing::Slot() const {
  return ring_ + next_ / slots_per_block_ * kBlockBytes + next_ % slots_per_block_ * slot_bytes_;
}

bool PacketRing::Empty() const {
  // Acquire: the kernel wrote the slot before the status that gives it to us.
  return (Status(Slot()).load(std::memory_order_acquire) & TP_STATUS_USER) == 0;
}

PacketRing::Frame PacketRing::Front() {
  uint8_t* slot = Slot();
  const auto& header = *reinterpret_cast<const tpacket2_hdr*>(slot);
  const int64_t time_ns = int64_t{header.tp_sec} * 1'000'000'000 + header.tp_nsec;
  if ((header.tp_status & TP_STATUS_COPY) != 0) {
    TakeCopy();
    return {std::span(copy_).first(copy_bytes_), time_ns, header.tp_len};
  }
  return {{slot + header.tp_mac, header.tp_snaplen}, time_ns, header.tp_len};
}

void PacketRing::TakeCopy() {
  if (std::exchange(copy_taken_, true)) return;
  const ssize_t bytes = recv(fd_, copy_.data(), copy_.size(), MSG_DONTWAIT);
  copy_bytes_ = bytes < 0 ? 0 : static_cast<size_t>(bytes);
}

void PacketRing::Pop() {
  // Copies stand in the order of their slots.
  if ((Status(Slot()).load(std::memory_order_relaxed) & TP_STATUS_COPY) != 0) TakeCopy();
  copy_taken_ = false;
  // Release: our reads of the slot are done before the kernel may overwrite it.
  Status(Slot()).store(TP_STATUS_KERNEL, std::memory_order_release);
  next_ = next_ + 1 == slots_ ? 0 : next_ + 1;
}

uint32_t PacketRing::TakeDrops() {
  tpacket_stats stats{};
  socklen_t length = sizeof stats;
  // The kernel starts again from 0 whenever it is asked.
  if (getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &stats, &length) != 0) return 0;
  return stats.tp_drops;
}

}  // namespace xtreme::connectx
