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

void TakeKeepalive(int fd, engine::TcpSettings* settings) {
  const engine::TcpSettings unasked;
  const bool is = KernelInt(fd, SOL_SOCKET, SO_KEEPALIVE) != 0;
  const auto kernels = [fd](int name) { return KernelInt(fd, IPPROTO_TCP, name); };
  settings->keepalive_idle = is ? base::Seconds(kernels(TCP_KEEPIDLE)) : unasked.keepalive_idle;
  settings->keepalive_interval =
      is ? base::Seconds(kernels(TCP_KEEPINTVL)) : unasked.keepalive_interval;
  settings->keepalive_probes =
      is ? static_cast<uint8_t>(kernels(TCP_KEEPCNT)) : unasked.keepalive_probes;
}

// As linux/tcp.h of newer kernels than the headers may be of; no socket of others has them.
constexpr int kLeastRto = 45;         // TCP_RTO_MIN_US
constexpr int kLongestAckDelay = 46;  // TCP_DELACK_MAX_US

// `value`: the kernel's.
void TakeSeldomSetting(int name, int value, engine::TcpSettings* settings) {
  const engine::TcpSettings unasked;
  const bool is = value > 0;
  switch (name) {
    case TCP_USER_TIMEOUT:
      settings->user_timeout = is ? base::Milliseconds(value) : unasked.user_timeout;
      return;
    case TCP_DEFER_ACCEPT: settings->deferrals = DeferralsOf(value); return;
    // -1: not at all.
    case TCP_LINGER2: settings->fin_wait_timeout = base::Seconds(value); return;
    case TCP_WINDOW_CLAMP:
      settings->window_clamp_bytes =
          is ? static_cast<uint32_t>(value) : unasked.window_clamp_bytes;
      return;
    case kLeastRto:
      settings->min_rto = is ? std::clamp(base::Microseconds(value), base::Microseconds(100),
                                          engine::kMostMinRto)
                             : unasked.min_rto;
      return;
    case kLongestAckDelay:
      settings->delayed_ack = is ? base::Earlier(unasked.delayed_ack, base::Microseconds(value))
                                 : unasked.delayed_ack;
      return;
    case TCP_NOTSENT_LOWAT:
      settings->unsent_low_water_bytes =
          value != 0 ? static_cast<uint32_t>(value) : unasked.unsent_low_water_bytes;
      return;
  }
}

// What the settings of a stream follow.
struct OptionName {
  int level;
  int name;
};
constexpr OptionName kOptionsOfStreams[] = {
    {SOL_SOCKET, SO_KEEPALIVE},      {SOL_SOCKET, SO_SNDBUF},
    {SOL_SOCKET, SO_SNDBUFFORCE},    {SOL_SOCKET, SO_RCVBUF},
    {SOL_SOCKET, SO_RCVBUFFORCE},    {IPPROTO_IP, IP_TTL},
    {IPPROTO_IP, IP_TOS},            {IPPROTO_TCP, TCP_NODELAY},
    {IPPROTO_TCP, TCP_CORK},         {IPPROTO_TCP, TCP_QUICKACK},
    {IPPROTO_TCP, TCP_MAXSEG},       {IPPROTO_TCP, TCP_CONGESTION},
    {IPPROTO_TCP, TCP_SYNCNT},       {IPPROTO_TCP, TCP_USER_TIMEOUT},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT}, {IPPROTO_TCP, TCP_LINGER2},
    {IPPROTO_TCP, TCP_WINDOW_CLAMP}, {IPPROTO_TCP, kLeastRto},
    {IPPROTO_TCP, kLongestAckDelay}, {IPPROTO_TCP, TCP_NOTSENT_LOWAT}};

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
  engine::TcpSettings settings;
  settings.timestamps = OffersTimestamps(faces_->settings().tcp_timestamps);
  for (const auto& [level, name] : kOptionsOfStreams) TakeSetting(level, name, &settings);
  return settings;
}

// Of one option; where nothing was asked, as without it.
void Socket::TakeSetting(int level, int name, engine::TcpSettings* settings) const {
  const engine::TcpSettings unasked;
  const auto kernels = [&](int option) { return KernelInt(fd(), level, option); };
  switch (level) {
    case IPPROTO_TCP: return TakeTcpSetting(name, settings);
    case IPPROTO_IP:
      if (name == IP_TTL) settings->ttl = static_cast<uint8_t>(kernels(name));
      if (name == IP_TOS) settings->tos = static_cast<uint8_t>(kernels(name));
      return;
    default: break;
  }
  if (name == SO_KEEPALIVE) return TakeKeepalive(fd(), settings);
  const auto asked = stream_->Asked(level, name);
  if (!asked) return;
  if (name == SO_SNDBUF || name == SO_SNDBUFFORCE) {
    settings->send_queue_bytes = RoomOf(*asked, kernels(SO_SNDBUF), unasked.send_queue_bytes);
  } else {
    settings->receive_window_bytes =
        std::max(RoomOf(*asked, kernels(SO_RCVBUF), unasked.receive_window_bytes),
                 engine::kLeastReceiveWindow);
  }
}

void Socket::TakeTcpSetting(int name, engine::TcpSettings* settings) const {
  const FaceSettings& faces = faces_->settings();
  const auto asked = [&] { return stream_->Asked(IPPROTO_TCP, name); };
  switch (name) {
    case TCP_NODELAY:
      settings->nodelay = faces.nodelay || KernelInt(fd(), IPPROTO_TCP, name) != 0;
      return;
    case TCP_CORK: settings->cork = KernelInt(fd(), IPPROTO_TCP, name) != 0; return;
    case TCP_QUICKACK: settings->quick_ack = asked().value_or(faces.quick_ack ? 1 : 0) != 0; return;
    case TCP_MAXSEG:
      settings->mss = static_cast<uint16_t>(asked().value_or(static_cast<int>(faces.mss)));
      return;
    case TCP_CONGESTION:
      settings->congestion = CongestionOf(stream_->AskedText(IPPROTO_TCP, name), faces.congestion);
      return;
    case TCP_KEEPIDLE:
    case TCP_KEEPINTVL:
    case TCP_KEEPCNT: return TakeKeepalive(fd(), settings);
    case TCP_SYNCNT:
      if (const auto more = asked()) settings->connect_timeout = ConnectTimeoutOf(*more);
      return;
    default: break;
  }
  // Of those that few programs set the kernel is asked only where they did.
  if (asked()) TakeSeldomSetting(name, KernelInt(fd(), IPPROTO_TCP, name), settings);
}

// Some programs set one with each message (TCP_QUICKACK, TCP_CORK), so the others are not asked for
// anew.
void Socket::FollowStreamOption(int level, int name) {
  RingDoor* const ring = door();
  if (ring == nullptr) return;
  const RingDoor::Entry entry(ring);
  engine::Tcp& tcp = ring->ring().tcp();
  engine::TcpSettings settings;
  if (!tcp.GetSettings(handle_, &settings)) return;
  const engine::TcpSettings before = settings;
  TakeSetting(level, name, &settings);
  if (settings != before) tcp.SetSettings(handle_, settings);
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
