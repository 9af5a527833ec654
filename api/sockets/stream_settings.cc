// SPDX-License-Identifier: Apache-2.0
//
// What a connection on a ring is told of what the program, or the environment, set. Options are the
// kernel's socket's too, which checks them and answers for them; what is not to be asked of it
// before there is a connection is kept with the stream.

#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/sockets/faces.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/settings.h"
#include "api/sockets/socket.h"
#include "api/sockets/stream.h"
#include "stack/base/time.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_options.h"

namespace xtreme::sockets {
namespace {

int KernelInt(int fd, int level, int name) {
  int value = 0;
  socklen_t length = sizeof value;
  return Kernel().getsockopt(fd, level, name, &value, &length) == 0 ? value : 0;
}

// Of a buffer that the program gave a size: what the kernel granted, which it doubled, but no less
// than without its word if it asked for as much.
uint32_t RoomOf(int asked, int kernels, uint32_t unasked) {
  const auto granted = static_cast<uint32_t>(kernels / 2);
  return asked < 0 || static_cast<uint32_t>(asked) < unasked ? granted : std::max(granted, unasked);
}

// By the kernel's name; `otherwise`, of VMA_TCP_CC_ALGO, of those that are not known here.
engine::TcpCongestion CongestionOf(std::string_view name, int64_t otherwise) {
  using Congestion = engine::TcpCongestion;
  constexpr std::array kByNumber = {Congestion::kNewReno, Congestion::kCubic, Congestion::kNone};
  if (name.starts_with("reno")) return Congestion::kNewReno;
  return name.starts_with("cubic") ? Congestion::kCubic : kByNumber[static_cast<size_t>(otherwise)];
}

// 0: never, 1: always, 2: as the kernel's connections.
bool OffersTimestamps(int64_t setting) {
  static const bool kernels_do = [] {
    int value = 1;
    std::ifstream("/proc/sys/net/ipv4/tcp_timestamps") >> value;
    return value != 0;
  }();
  return setting == 2 ? kernels_do : setting != 0;
}

// tcp(7): as long as the kernel would wait for an answer to the last of so many SYNs more, of which
// each waits twice as long as the one before it.
base::Nanoseconds ConnectTimeoutOf(int more_syns) {
  constexpr int kMost = 10;
  return base::Seconds((2 << std::min(more_syns, kMost)) - 1);
}

// tcp(7): of TCP_DEFER_ACCEPT, how often a time that doubles from a second on passes in so many.
uint8_t DeferralsOf(int seconds) {
  uint8_t periods = 0;
  for (int passed = 0; passed < seconds && periods < UINT8_MAX; ++periods) {
    constexpr int kLongest = 120;
    passed += std::min(1 << std::min<int>(periods, 7), kLongest);
  }
  return periods;
}

auto Find(const std::vector<StreamOption>& options, int level, int name) {
  return std::find_if(options.begin(), options.end(), [=](const StreamOption& each) {
    return each.level == level && each.name == name;
  });
}

}  // namespace

void Stream::Keep(int level, int name, const void* value, size_t length) {
  const auto* const bytes = static_cast<const uint8_t*>(value);
  const std::lock_guard lock(options_mutex);
  std::erase_if(options, [=](const StreamOption& each) {
    return each.level == level && each.name == name;
  });
  options.push_back({level, name, {bytes, bytes + length}});
}

std::optional<int> Stream::Asked(int level, int name) {
  const std::lock_guard lock(options_mutex);
  const auto found = Find(options, level, name);
  int value = 0;
  if (found == options.end() || found->value.size() < sizeof value) return std::nullopt;
  std::memcpy(&value, found->value.data(), sizeof value);
  return value;
}

std::string Stream::AskedText(int level, int name) {
  const std::lock_guard lock(options_mutex);
  const auto found = Find(options, level, name);
  return found == options.end() ? "" : std::string(found->value.begin(), found->value.end());
}

// What the program set: by its kernel's socket, where that says it.
engine::TcpSettings Socket::StreamSettings() const {
  const FaceSettings& faces = faces_->settings();
  engine::TcpSettings settings;
  settings.nodelay = faces.nodelay || KernelInt(fd(), IPPROTO_TCP, TCP_NODELAY) != 0;
  settings.cork = KernelInt(fd(), IPPROTO_TCP, TCP_CORK) != 0;
  settings.quick_ack =
      stream_->Asked(IPPROTO_TCP, TCP_QUICKACK).value_or(faces.quick_ack ? 1 : 0) != 0;
  settings.timestamps = OffersTimestamps(faces.tcp_timestamps);
  settings.mss = static_cast<uint16_t>(
      stream_->Asked(IPPROTO_TCP, TCP_MAXSEG).value_or(static_cast<int>(faces.mss)));
  settings.congestion =
      CongestionOf(stream_->AskedText(IPPROTO_TCP, TCP_CONGESTION), faces.congestion);
  for (const int name : {SO_SNDBUF, SO_SNDBUFFORCE}) {
    const auto asked = stream_->Asked(SOL_SOCKET, name);
    if (!asked) continue;
    settings.send_queue_bytes =
        RoomOf(*asked, KernelInt(fd(), SOL_SOCKET, SO_SNDBUF), settings.send_queue_bytes);
  }
  for (const int name : {SO_RCVBUF, SO_RCVBUFFORCE}) {
    const auto asked = stream_->Asked(SOL_SOCKET, name);
    if (!asked) continue;
    settings.receive_window_bytes = std::max(
        RoomOf(*asked, KernelInt(fd(), SOL_SOCKET, SO_RCVBUF), settings.receive_window_bytes),
        engine::kLeastReceiveWindow);
  }
  if (KernelInt(fd(), SOL_SOCKET, SO_KEEPALIVE) != 0) {
    settings.keepalive_idle = base::Seconds(KernelInt(fd(), IPPROTO_TCP, TCP_KEEPIDLE));
    settings.keepalive_interval = base::Seconds(KernelInt(fd(), IPPROTO_TCP, TCP_KEEPINTVL));
    settings.keepalive_probes = static_cast<uint8_t>(KernelInt(fd(), IPPROTO_TCP, TCP_KEEPCNT));
  }
  settings.ttl = static_cast<uint8_t>(KernelInt(fd(), IPPROTO_IP, IP_TTL));
  settings.tos = static_cast<uint8_t>(KernelInt(fd(), IPPROTO_IP, IP_TOS));
  const int user_timeout_ms = KernelInt(fd(), IPPROTO_TCP, TCP_USER_TIMEOUT);
  if (user_timeout_ms != 0) settings.user_timeout = base::Milliseconds(user_timeout_ms);
  const auto more_syns = stream_->Asked(IPPROTO_TCP, TCP_SYNCNT);
  if (more_syns) settings.connect_timeout = ConnectTimeoutOf(*more_syns);
  TakeSeldomSettings(&settings);
  return settings;
}

// Of those that few programs set the kernel is asked only where they did.
void Socket::TakeSeldomSettings(engine::TcpSettings* settings) const {
  const auto kernels = [this](int name) -> std::optional<int> {
    if (!stream_->Asked(IPPROTO_TCP, name)) return std::nullopt;
    return KernelInt(fd(), IPPROTO_TCP, name);
  };
  if (const auto seconds = kernels(TCP_DEFER_ACCEPT)) {
    settings->deferrals = DeferralsOf(*seconds);
  }
  // -1: not at all.
  if (const auto seconds = kernels(TCP_LINGER2)) {
    settings->fin_wait_timeout = base::Seconds(*seconds);
  }
  // 0: as without it.
  const auto clamp = kernels(TCP_WINDOW_CLAMP);
  if (clamp.value_or(0) != 0) settings->window_clamp_bytes = static_cast<uint32_t>(*clamp);
  // As linux/tcp.h of newer kernels than the headers may be of; no socket of others has them.
  constexpr int kLeastRto = 45;        // TCP_RTO_MIN_US
  constexpr int kLongestAckDelay = 46;  // TCP_DELACK_MAX_US
  if (const auto least_us = kernels(kLeastRto); least_us.value_or(0) > 0) {
    settings->min_rto = base::Later(base::Microseconds(*least_us), base::Microseconds(100));
  }
  if (const auto most_us = kernels(kLongestAckDelay); most_us.value_or(0) > 0) {
    settings->delayed_ack = base::Earlier(settings->delayed_ack, base::Microseconds(*most_us));
  }
  if (const auto unsent = kernels(TCP_NOTSENT_LOWAT); unsent.value_or(0) != 0) {
    settings->unsent_low_water_bytes = static_cast<uint32_t>(*unsent);
  }
}

void Socket::CopyStreamSettings() {
  RingDoor* const ring = door();
  if (ring == nullptr) return;
  const RingDoor::Entry entry(ring);
  ring->ring().tcp().SetSettings(handle_, StreamSettings());
}

// TCP_NOTSENT_LOWAT. Linux: an edge, if it is writable then.
void Socket::FollowUnsentLowWater() {
  stream_->bounds_unsent = true;
  RingDoor* const ring = door();
  if (ring == nullptr) return;
  const RingDoor::Entry entry(ring);
  engine::Tcp& tcp = ring->ring().tcp();
  engine::TcpSocket* const socket = tcp.Find(handle_);
  const bool open = socket != nullptr && stream_->state == Stream::State::kConnected;
  if (open && taker_ != Taker::kCompletions && !tcp.HasAmpleRoom(socket)) SetUnwritable();
  Mark();
  Change(0, 0, mask() & (EPOLLOUT | EPOLLWRNORM));
}

}  // namespace xtreme::sockets
