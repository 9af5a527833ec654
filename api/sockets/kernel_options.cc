// SPDX-License-Identifier: Apache-2.0
//
// Options that a ring cannot heed: with one of them a socket is the kernel's, or what is a
// connection of a ring already refuses it, or says in the log that it does nothing. None is taken
// without a word.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <string>

#include "api/sockets/kernel_calls.h"
#include "api/sockets/log.h"
#include "api/sockets/socket.h"
#include "api/sockets/stream.h"
#include "fmt/format.h"

namespace xtreme::sockets {
namespace {

enum class Of : uint8_t { kBoth, kStreams, kDatagrams };

struct KernelOption {
  int level;
  int name;
  Of of;
  const char* text;
  bool mild = false;  // It only says which way the host's own rules lead: a connection goes on.
};

// As asm-generic/socket.h of newer kernels than the headers may be of.
constexpr int kReceiveMark = 75;      // SO_RCVMARK
constexpr int kReceivePriority = 82;    // SO_RCVPRIORITY
constexpr int kAuthenticationKey = 38;  // TCP_AO_ADD_KEY
constexpr int kMostRto = 44;            // TCP_RTO_MAX_MS

constexpr KernelOption kKernelOptions[] = {
    {SOL_SOCKET, SO_MARK, Of::kBoth, "SO_MARK: the host's rules look at it", true},
    {SOL_SOCKET, SO_DONTROUTE, Of::kBoth, "SO_DONTROUTE", true},
    {SOL_SOCKET, SO_NO_CHECK, Of::kDatagrams, "SO_NO_CHECK: what it sends has no checksum"},
    {SOL_SOCKET, kReceiveMark, Of::kDatagrams, "SO_RCVMARK"},
    {SOL_SOCKET, kReceivePriority, Of::kDatagrams, "SO_RCVPRIORITY"},
    {SOL_SOCKET, SO_TIMESTAMP_NEW, Of::kBoth, "SO_TIMESTAMP of 64 bits"},
    {SOL_SOCKET, SO_TIMESTAMPNS_NEW, Of::kBoth, "SO_TIMESTAMPNS of 64 bits"},
    {SOL_SOCKET, SO_TIMESTAMPING_NEW, Of::kBoth, "SO_TIMESTAMPING of 64 bits"},
    {IPPROTO_IP, IP_OPTIONS, Of::kStreams, "IP_OPTIONS"},
    {IPPROTO_IP, IP_RECVERR, Of::kStreams, "IP_RECVERR"},
    {IPPROTO_IP, IP_TRANSPARENT, Of::kStreams, "IP_TRANSPARENT"},
    {IPPROTO_IP, IP_UNICAST_IF, Of::kStreams, "IP_UNICAST_IF"},
    {IPPROTO_IP, IP_MINTTL, Of::kStreams, "IP_MINTTL: the kernel drops what comes from afar"},
    {IPPROTO_IP, IP_IPSEC_POLICY, Of::kBoth, "IPsec"},
    {IPPROTO_IP, IP_XFRM_POLICY, Of::kBoth, "IPsec"},
    {IPPROTO_IP, IP_PASSSEC, Of::kDatagrams, "IP_PASSSEC"},
    {IPPROTO_IP, IP_CHECKSUM, Of::kDatagrams, "IP_CHECKSUM"},
    {IPPROTO_UDP, UDP_ENCAP, Of::kDatagrams, "UDP_ENCAP: the kernel unpacks what comes"},
    {IPPROTO_TCP, TCP_MD5SIG, Of::kStreams, "TCP_MD5SIG: the kernel signs segments"},
    {IPPROTO_TCP, TCP_MD5SIG_EXT, Of::kStreams, "TCP_MD5SIG: the kernel signs segments"},
    {IPPROTO_TCP, kAuthenticationKey, Of::kStreams, "TCP-AO: the kernel signs segments"},
    {IPPROTO_TCP, kMostRto, Of::kStreams, "TCP_RTO_MAX_MS"},
    {IPPROTO_TCP, TCP_SAVE_SYN, Of::kStreams, "TCP_SAVE_SYN"},
    {IPPROTO_TCP, TCP_REPAIR, Of::kStreams, "TCP_REPAIR"},
    {IPPROTO_TCP, TCP_TX_DELAY, Of::kStreams, "TCP_TX_DELAY"},
};

bool IsOn(const void* value, socklen_t length) {
  const auto* const bytes = static_cast<const uint8_t*>(value);
  return value != nullptr &&
         std::any_of(bytes, bytes + length, [](uint8_t byte) { return byte != 0; });
}

const KernelOption* Find(bool stream, int level, int name, const void* value, socklen_t length) {
  const Of others = stream ? Of::kDatagrams : Of::kStreams;
  const auto* const found = std::find_if(
      std::begin(kKernelOptions), std::end(kKernelOptions), [&](const KernelOption& each) {
        return each.level == level && each.name == name && each.of != others;
      });
  return found != std::end(kKernelOptions) && IsOn(value, length) ? found : nullptr;
}

}  // namespace

// Some of it the kernel's socket, which is never connected, would take, and Linux does not of a
// connection.
int Socket::RefuseOption(int level, int name, const void* value, socklen_t length) const {
  // The kernel has an error for it: nothing of a value is to be looked at.
  if (!HasConnected() || static_cast<int>(length) < 0) return 0;
  const KernelOption* const found = Find(/*stream=*/true, level, name, value, length);
  // Of listeners: to others it does nothing.
  const bool idle = level == IPPROTO_TCP && name == TCP_SAVE_SYN;
  if (found != nullptr && !found->mild && !idle) return -EOPNOTSUPP;
  const bool ended = stream_->state == Stream::State::kEnded;
  if (level != IPPROTO_TCP || ended || value == nullptr) return 0;
  const bool opens_fast = name == TCP_FASTOPEN || name == TCP_FASTOPEN_CONNECT ||
                          name == TCP_FASTOPEN_NO_COOKIE;
  const bool unclamps = name == TCP_WINDOW_CLAMP && !IsOn(value, length);
  return opens_fast || unclamps ? -EINVAL : 0;
}

int Socket::HeedKernelOption(int level, int name, const void* value, socklen_t length) {
  if (const int refused = RefuseOption(level, name, value, length); refused != 0) return refused;
  const KernelOption* const found = Find(stream_ != nullptr, level, name, value, length);
  if (found == nullptr) return 0;
  if (!HasConnected()) {
    LeaveToKernel(found->text);
  } else if (found->mild) {
    Log(LogLevel::kWarning, "fd {} is on a ring, to which {} says nothing", fd(), found->text);
  }
  return 0;
}

// IP_LOCAL_PORT_RANGE: the kernel chooses the port that it will connect from. False: it has none.
bool Socket::BindWithinRange() {
  constexpr int kPortRange = 51;
  if (local_.port != 0 || stream_->Asked(IPPROTO_IP, kPortRange).value_or(0) == 0) return true;
  const int off = 0;
  Kernel().setsockopt(fd(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &off, sizeof off);
  sockaddr_in local{.sin_family = AF_INET, .sin_addr = {htonl(local_.address.value())}};
  const bool bound =
      Kernel().bind(fd(), reinterpret_cast<const sockaddr*>(&local), sizeof local) == 0;
  any_port_ = bound_ = bound;
  LearnLocal();
  return bound;
}

}  // namespace xtreme::sockets
