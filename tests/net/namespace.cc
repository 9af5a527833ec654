// SPDX-License-Identifier: Apache-2.0

#include "tests/net/namespace.h"

#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/link/inet6.h>
#include <netlink/route/link/veth.h>
#include <netlink/route/neighbour.h>
#include <netlink/route/nexthop.h>
#include <netlink/route/route.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace xtreme::net {
namespace {

// A reference to one of libnl's objects.
template <typename T, void (*kPut)(T*)>
struct Put {
  void operator()(T* object) const { kPut(object); }
};
template <typename T, void (*kPut)(T*)>
using Held = std::unique_ptr<T, Put<T, kPut>>;
using Link = Held<rtnl_link, rtnl_link_put>;
using Address = Held<rtnl_addr, rtnl_addr_put>;
using AbstractAddress = Held<nl_addr, nl_addr_put>;
using Route = Held<rtnl_route, rtnl_route_put>;
using Neighbour = Held<rtnl_neigh, rtnl_neigh_put>;

absl::Status FromNetlink(int error, const std::string& action) {
  if (error >= 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(action, ": ", nl_geterror(error)));
}

absl::StatusOr<AbstractAddress> ParseAddress(const std::string& text) {
  nl_addr* address = nullptr;
  if (int error = nl_addr_parse(text.c_str(), AF_INET, &address); error < 0) {
    return absl::InvalidArgumentError(absl::StrCat("address ", text, ": ", nl_geterror(error)));
  }
  return AbstractAddress(address);
}

int OpenOwnNamespace() { return open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC); }

// Makes a namespace on a thread that ends at once; returns its descriptor or -errno.
int MakeNamespace() {
  int fd = -1;
  std::thread([&fd] {
    fd = unshare(CLONE_NEWNET) == 0 ? OpenOwnNamespace() : -1;
    if (fd < 0) fd = -errno;
  }).join();
  return fd;
}

nl_sock* OpenNetlink() {
  nl_sock* netlink = nl_socket_alloc();
  if (netlink == nullptr) return nullptr;
  if (nl_connect(netlink, NETLINK_ROUTE) >= 0) return netlink;
  nl_socket_free(netlink);
  return nullptr;
}

absl::StatusOr<Link> FindLink(nl_sock* netlink, const std::string& name) {
  rtnl_link* link = nullptr;
  const int error = rtnl_link_get_kernel(netlink, 0, name.c_str(), &link);
  if (error < 0) {
    return absl::NotFoundError(absl::StrCat("interface ", name, ": ", nl_geterror(error)));
  }
  return Link(link);
}

}  // namespace

Namespace::Inside::Inside(const Namespace& space) : outside_fd_(OpenOwnNamespace()) {
  if (outside_fd_ < 0 || setns(space.fd(), CLONE_NEWNET) != 0) {
    std::perror("enter a network namespace");
    std::abort();  // A test that goes on in the wrong namespace could harm the machine.
  }
}

Namespace::Inside::~Inside() {
  if (setns(outside_fd_, CLONE_NEWNET) != 0) {
    std::perror("leave a network namespace");
    std::abort();
  }
  close(outside_fd_);
}

absl::StatusOr<std::unique_ptr<Namespace>> Namespace::Create() {
  const int fd = MakeNamespace();
  if (fd == -EPERM) {
    return absl::PermissionDeniedError(
        "make a network namespace: run as root, or under "
        "unshare --user --net --mount --map-root-user");
  }
  if (fd < 0) {
    return absl::InternalError(absl::StrCat("make a network namespace: ", std::strerror(-fd)));
  }
  std::unique_ptr<Namespace> space(new Namespace(fd, nullptr));
  nl_sock* netlink = nullptr;
  {
    Inside inside(*space);
    netlink = OpenNetlink();
  }
  if (netlink == nullptr) return absl::InternalError("open rtnetlink in a new namespace");
  std::unique_ptr<Namespace> ready(new Namespace(dup(fd), netlink));
  if (absl::Status status = ready->SetUp("lo"); !status.ok()) return status;
  return ready;
}

Namespace::Namespace(int fd, nl_sock* netlink) : fd_(fd), netlink_(netlink) {}

Namespace::~Namespace() {
  if (netlink_ != nullptr) nl_socket_free(netlink_);
  close(fd_);
}

absl::Status Namespace::Change(const std::string& interface, rtnl_link* change) {
  absl::StatusOr<Link> link = FindLink(netlink_, interface);
  if (!link.ok()) return link.status();
  return FromNetlink(rtnl_link_change(netlink_, link->get(), change, 0),
                     absl::StrCat("change interface ", interface));
}

absl::Status Namespace::SetUp(const std::string& interface, bool up) {
  Link change(rtnl_link_alloc());
  if (up) {
    rtnl_link_set_flags(change.get(), IFF_UP);
  } else {
    rtnl_link_unset_flags(change.get(), IFF_UP);
  }
  return Change(interface, change.get());
}

absl::Status Namespace::SetMtu(const std::string& interface, uint32_t mtu_bytes) {
  Link change(rtnl_link_alloc());
  rtnl_link_set_mtu(change.get(), mtu_bytes);
  return Change(interface, change.get());
}

absl::Status Namespace::SetMac(const std::string& interface, const MacAddress& mac) {
  Link change(rtnl_link_alloc());
  AbstractAddress address(nl_addr_build(AF_LLC, mac.data(), mac.size()));
  rtnl_link_set_addr(change.get(), address.get());
  return Change(interface, change.get());
}

absl::Status Namespace::AddAddress(const std::string& interface, const std::string& address) {
  return ChangeAddress(interface, address, /*add=*/true);
}

absl::Status Namespace::RemoveAddress(const std::string& interface, const std::string& address) {
  return ChangeAddress(interface, address, /*add=*/false);
}

absl::Status Namespace::ChangeAddress(const std::string& interface, const std::string& address,
                                      bool add) {
  absl::StatusOr<AbstractAddress> local = ParseAddress(address);
  if (!local.ok()) return local.status();
  absl::StatusOr<int> index = IndexOf(interface);
  if (!index.ok()) return index.status();
  Address object(rtnl_addr_alloc());
  rtnl_addr_set_ifindex(object.get(), *index);
  rtnl_addr_set_local(object.get(), local->get());
  const int error = add ? rtnl_addr_add(netlink_, object.get(), NLM_F_EXCL)
                        : rtnl_addr_delete(netlink_, object.get(), 0);
  return FromNetlink(error, absl::StrCat(add ? "add" : "remove", " address ", address));
}

namespace {

absl::StatusOr<Route> MakeRoute(const std::string& destination, int ifindex,
                                const std::string& gateway) {
  absl::StatusOr<AbstractAddress> dst = ParseAddress(destination);
  if (!dst.ok()) return dst.status();
  Route route(rtnl_route_alloc());
  rtnl_route_set_family(route.get(), AF_INET);
  rtnl_route_set_dst(route.get(), dst->get());
  rtnl_route_set_scope(route.get(), gateway.empty() ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE);
  rtnl_nexthop* hop = rtnl_route_nh_alloc();
  rtnl_route_nh_set_ifindex(hop, ifindex);
  rtnl_route_add_nexthop(route.get(), hop);  // The route owns it now.
  if (!gateway.empty()) {
    absl::StatusOr<AbstractAddress> via = ParseAddress(gateway);
    if (!via.ok()) return via.status();
    rtnl_route_nh_set_gateway(hop, via->get());
  }
  return route;
}

}  // namespace

absl::Status Namespace::ChangeRoute(const std::string& destination, const std::string& interface,
                                    const std::string& gateway,
                                    const std::function<int(nl_sock*, rtnl_route*)>& change) {
  absl::StatusOr<int> index = IndexOf(interface);
  if (!index.ok()) return index.status();
  absl::StatusOr<Route> route = MakeRoute(destination, *index, gateway);
  if (!route.ok()) return route.status();
  return FromNetlink(change(netlink_, route->get()), absl::StrCat("change route ", destination));
}

absl::Status Namespace::AddRoute(const std::string& destination, const std::string& interface,
                                 const std::string& gateway, uint32_t mtu) {
  return ChangeRoute(destination, interface, gateway, [mtu](nl_sock* netlink, rtnl_route* route) {
    if (mtu != 0) rtnl_route_set_metric(route, RTAX_MTU, mtu);
    return rtnl_route_add(netlink, route, NLM_F_EXCL);
  });
}

absl::Status Namespace::ReplaceRoute(const std::string& destination, const std::string& interface,
                                     const std::string& gateway) {
  return ChangeRoute(destination, interface, gateway, [](nl_sock* netlink, rtnl_route* route) {
    return rtnl_route_add(netlink, route, NLM_F_CREATE | NLM_F_REPLACE);
  });
}

absl::Status Namespace::RemoveRoute(const std::string& destination, const std::string& interface) {
  return ChangeRoute(destination, interface, "", [](nl_sock* netlink, rtnl_route* route) {
    // Whatever its gateway.
    rtnl_route_set_scope(route, RT_SCOPE_NOWHERE);
    return rtnl_route_delete(netlink, route, 0);
  });
}

absl::Status Namespace::AddNeighbour(const std::string& interface, const std::string& address,
                                     const MacAddress& mac) {
  absl::StatusOr<AbstractAddress> dst = ParseAddress(address);
  if (!dst.ok()) return dst.status();
  absl::StatusOr<int> index = IndexOf(interface);
  if (!index.ok()) return index.status();
  Neighbour neighbour(rtnl_neigh_alloc());
  AbstractAddress lladdr(nl_addr_build(AF_LLC, mac.data(), mac.size()));
  rtnl_neigh_set_ifindex(neighbour.get(), *index);
  rtnl_neigh_set_dst(neighbour.get(), dst->get());
  rtnl_neigh_set_lladdr(neighbour.get(), lladdr.get());
  rtnl_neigh_set_state(neighbour.get(), NUD_PERMANENT);
  return FromNetlink(rtnl_neigh_add(netlink_, neighbour.get(), NLM_F_CREATE | NLM_F_REPLACE),
                     absl::StrCat("add neighbour ", address));
}

absl::Status Namespace::RemoveInterface(const std::string& interface) {
  absl::StatusOr<Link> link = FindLink(netlink_, interface);
  if (!link.ok()) return link.status();
  return FromNetlink(rtnl_link_delete(netlink_, link->get()),
                     absl::StrCat("remove interface ", interface));
}

absl::StatusOr<int> Namespace::IndexOf(const std::string& interface) {
  absl::StatusOr<Link> link = FindLink(netlink_, interface);
  if (!link.ok()) return link.status();
  return rtnl_link_get_ifindex(link->get());
}

absl::StatusOr<MacAddress> Namespace::MacOf(const std::string& interface) {
  absl::StatusOr<Link> link = FindLink(netlink_, interface);
  if (!link.ok()) return link.status();
  nl_addr* address = rtnl_link_get_addr(link->get());
  MacAddress mac;
  if (address == nullptr || nl_addr_get_len(address) != mac.size()) {
    return absl::NotFoundError(absl::StrCat("interface ", interface, " has no MAC address"));
  }
  std::memcpy(mac.data(), nl_addr_get_binary_addr(address), mac.size());
  return mac;
}

absl::StatusOr<bool> Namespace::HasInterfaceNamed(const std::string& prefix) {
  nl_cache* cache = nullptr;
  if (int error = rtnl_link_alloc_cache(netlink_, AF_UNSPEC, &cache); error < 0) {
    return FromNetlink(error, "list interfaces");
  }
  const Held<nl_cache, nl_cache_free> links(cache);
  for (nl_object* at = nl_cache_get_first(cache); at != nullptr; at = nl_cache_get_next(at)) {
    const char* name = rtnl_link_get_name(reinterpret_cast<rtnl_link*>(at));
    if (std::strncmp(name, prefix.c_str(), prefix.size()) == 0) return true;
  }
  return false;
}

absl::Status Namespace::SetSysctl(const std::string& name, const std::string& value) {
  std::string path = absl::StrCat("/proc/sys/", name);
  std::replace(path.begin(), path.end(), '.', '/');
  Inside inside(*this);  // /proc/sys/net shows the namespace of the thread that opens it.
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  const bool written = write(fd, value.data(), value.size()) == static_cast<ssize_t>(value.size());
  const int error = errno;
  close(fd);
  if (written) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("write ", value, " to ", path, ": ", std::strerror(error)));
}

absl::Status ConnectByVeth(Namespace& a, const std::string& name_a, Namespace& b,
                           const std::string& name_b) {
  Link pair(rtnl_link_veth_alloc());
  rtnl_link* peer = rtnl_link_veth_get_peer(pair.get());
  rtnl_link_set_name(pair.get(), name_a.c_str());
  rtnl_link_set_name(peer, name_b.c_str());
  rtnl_link_set_ns_fd(peer, b.fd());
  const int error = rtnl_link_add(a.netlink_, pair.get(), NLM_F_CREATE | NLM_F_EXCL);
  rtnl_link_put(peer);
  if (error < 0) return FromNetlink(error, absl::StrCat("add veth ", name_a, " - ", name_b));

  struct End {
    Namespace& space;
    const std::string& name;
  };
  for (const End& end : {End{a, name_a}, End{b, name_b}}) {
    Link quiet(rtnl_link_alloc());
    rtnl_link_inet6_set_addr_gen_mode(quiet.get(), rtnl_link_inet6_str2addrgenmode("none"));
    (void)end.space.Change(end.name, quiet.get());  // Refused by a kernel without IPv6.
    if (absl::Status status = end.space.SetUp(end.name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace xtreme::net
