// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/private_veth.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netlink/netlink.h>
#include <netlink/route/link.h>
#include <netlink/route/link/inet6.h>
#include <netlink/route/link/veth.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xtreme::connectx {
namespace {

// An interface's name has 15 characters: 3 of prefix, 5 of process id (up to 2^22), 6 of start
// time, 1 of index.
constexpr char kInletPrefix[] = "cxd";
constexpr char kOutletPrefix[] = "cxk";
constexpr size_t kPrefixLength = 3;
constexpr size_t kOwnerLength = 12;
constexpr int kPairsPerProcess = 36;

constexpr uint32_t kInletMtu =
    65535;                           // The decider passes what the interface took, whatever it is.
constexpr uint32_t kOutletMtu = 68;  // The least that the kernel allows.

struct PutLink {
  void operator()(rtnl_link* link) const { rtnl_link_put(link); }
};
using Link = std::unique_ptr<rtnl_link, PutLink>;

struct FreeSocket {
  void operator()(nl_sock* socket) const { nl_socket_free(socket); }
};
using Netlink = std::unique_ptr<nl_sock, FreeSocket>;

absl::Status FromNetlink(int error, const std::string& action) {
  if (error >= 0) return absl::OkStatus();
  const std::string message = absl::StrCat(action, ": ", nl_geterror(error));
  if (error == -NLE_PERM) {
    return absl::PermissionDeniedError(absl::StrCat(message, " (needs CAP_NET_ADMIN)"));
  }
  return absl::InternalError(message);
}

absl::StatusOr<Netlink> OpenNetlink() {
  Netlink netlink(nl_socket_alloc());
  if (netlink == nullptr) return absl::ResourceExhaustedError("allocate a netlink socket");
  const absl::Status status =
      FromNetlink(nl_connect(netlink.get(), NETLINK_ROUTE), "connect to rtnetlink");
  if (!status.ok()) return status;
  return netlink;
}

std::string Base36(uint64_t value, size_t digits) {
  std::string text(digits, '0');
  for (size_t i = digits; i > 0; --i, value /= 36) {
    text[i - 1] = "0123456789abcdefghijklmnopqrstuvwxyz"[value % 36];
  }
  return text;
}

// Clock ticks from boot to this process's start: field 22 of proc(5)'s stat, the 20th after the
// parenthesis that ends the name. 0 without /proc: the lock alone keeps owners apart.
uint64_t StartTime() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  return std::strtoull(field.c_str(), nullptr, 10);
}

// Binds the abstract address that says `owner` lives. Returns a descriptor, or -errno: -EADDRINUSE
// means that it does.
int LockOwner(const std::string& owner) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string name = absl::StrCat("xtreme-connectx-", owner);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) return fd;
  const int error = errno;
  close(fd);
  return -error;
}

absl::Status DeleteLink(nl_sock* netlink, const std::string& name) {
  Link link(rtnl_link_alloc());
  rtnl_link_set_name(link.get(), name.c_str());
  return FromNetlink(rtnl_link_delete(netlink, link.get()), absl::StrCat("delete ", name));
}

// Turns an offload of the inlet off, so that the kernel does that work before the tap sees a frame.
absl::Status TurnOff(int fd, const std::string& interface, uint32_t command, uint32_t value) {
  ethtool_value request{.cmd = command, .data = value};
  ifreq ifr{};
  std::strncpy(ifr.ifr_name, interface.c_str(), IFNAMSIZ - 1);
  ifr.ifr_data = reinterpret_cast<char*>(&request);
  if (ioctl(fd, SIOCETHTOOL, &ifr) == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("turn an offload of ", interface, " off: ", std::strerror(errno)));
}

// Flags of the VLAN offloads are set together; none of the others that they share a word with is
// on.
constexpr uint32_t kNoFlags = 0;

absl::Status TurnOffloadsOff(int fd, const std::string& interface) {
  for (const uint32_t command : {ETHTOOL_STSO, ETHTOOL_STXCSUM, ETHTOOL_SFLAGS}) {
    absl::Status status = TurnOff(fd, interface, command, kNoFlags);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Brings an end up such that the kernel itself sends nothing through it: no IPv6 address, no ARP,
// no multicast reports.
absl::Status BringUpSilent(nl_sock* netlink, const std::string& name, const std::string& alias) {
  Link end(rtnl_link_alloc());
  rtnl_link_set_ifindex(end.get(), static_cast<int>(if_nametoindex(name.c_str())));
  Link no_ipv6(rtnl_link_alloc());
  rtnl_link_inet6_set_addr_gen_mode(no_ipv6.get(), rtnl_link_inet6_str2addrgenmode("none"));
  // Refused where there is no IPv6 anyway: below its least MTU, or in the whole kernel.
  (void)rtnl_link_change(netlink, end.get(), no_ipv6.get(), 0);

  Link silent(rtnl_link_alloc());
  rtnl_link_set_flags(silent.get(), IFF_NOARP | IFF_UP);
  rtnl_link_unset_flags(silent.get(), IFF_MULTICAST);
  rtnl_link_set_ifalias(silent.get(), alias.c_str());
  return FromNetlink(rtnl_link_change(netlink, end.get(), silent.get(), 0),
                     absl::StrCat("bring ", name, " up"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrivateVeth>> PrivateVeth::Create(const std::string& serves) {
  absl::StatusOr<Netlink> netlink = OpenNetlink();
  if (!netlink.ok()) return netlink.status();
  const std::string process = Base36(getpid(), 5) + Base36(StartTime(), 6);
  for (int index = 0; index < kPairsPerProcess; ++index) {
    const std::string owner = process + Base36(index, 1);
    const int lock_fd = LockOwner(owner);
    if (lock_fd == -EADDRINUSE) continue;
    if (lock_fd < 0) {
      return absl::InternalError(absl::StrCat("lock ", owner, ": ", std::strerror(-lock_fd)));
    }
    std::unique_ptr<PrivateVeth> veth(new PrivateVeth(netlink->release(), lock_fd, owner));
    if (absl::Status status = veth->Build(serves); !status.ok()) return status;
    return veth;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("private veth pairs of one process: at most ", kPairsPerProcess));
}

PrivateVeth::PrivateVeth(nl_sock* netlink, int lock_fd, std::string owner)
    : netlink_(netlink),
      lock_fd_(lock_fd),
      owner_(std::move(owner)),
      inlet_(kInletPrefix + owner_),
      outlet_(kOutletPrefix + owner_) {}

PrivateVeth::~PrivateVeth() {
  // The pair before the lock: who takes the lock may take the name.
  if (inlet_index_ != 0) (void)DeleteLink(netlink_, inlet_);
  close(lock_fd_);
  nl_socket_free(netlink_);
}

absl::Status PrivateVeth::Build(const std::string& serves) {
  const std::string action = absl::StrCat("make the private veth pair ", inlet_);
  Link pair(rtnl_link_veth_alloc());
  rtnl_link* peer = rtnl_link_veth_get_peer(pair.get());
  rtnl_link_set_name(pair.get(), inlet_.c_str());
  rtnl_link_set_name(peer, outlet_.c_str());
  rtnl_link_set_mtu(pair.get(), kInletMtu);
  rtnl_link_set_mtu(peer, kOutletMtu);
  const int error = rtnl_link_add(netlink_, pair.get(), NLM_F_CREATE | NLM_F_EXCL);
  rtnl_link_put(peer);
  if (error < 0) return FromNetlink(error, action);
  inlet_index_ = static_cast<int>(if_nametoindex(inlet_.c_str()));

  // The lock's socket serves for the ioctls too: both are of this namespace.
  if (absl::Status status = TurnOffloadsOff(lock_fd_, inlet_); !status.ok()) return status;

  const std::string alias = absl::StrCat("software ConnectX on ", serves, ", process ", getpid());
  for (const std::string& name : {inlet_, outlet_}) {
    if (absl::Status status = BringUpSilent(netlink_, name, alias); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> PrivateVeth::RemoveAbandoned() {
  absl::StatusOr<Netlink> netlink = OpenNetlink();
  if (!netlink.ok()) return netlink.status();
  nl_cache* cache = nullptr;
  const int error = rtnl_link_alloc_cache(netlink->get(), AF_UNSPEC, &cache);
  if (error < 0) return FromNetlink(error, "list interfaces");
  const std::unique_ptr<nl_cache, void (*)(nl_cache*)> links(cache, nl_cache_free);

  std::vector<std::string> removed;
  for (nl_object* at = nl_cache_get_first(cache); at != nullptr; at = nl_cache_get_next(at)) {
    const std::string name = rtnl_link_get_name(reinterpret_cast<rtnl_link*>(at));
    if (name.size() != kPrefixLength + kOwnerLength || name.rfind(kInletPrefix, 0) != 0) continue;
    const std::string owner = name.substr(kPrefixLength);
    const int lock_fd = LockOwner(owner);
    if (lock_fd < 0) continue;  // Its owner lives.
    if (DeleteLink(netlink->get(), name).ok()) removed.push_back(owner);
    close(lock_fd);
  }
  return removed;
}

}  // namespace xtreme::connectx
