// SPDX-License-Identifier: Apache-2.0
//
// Network namespaces for tests: made, joined by veth pairs, given addresses, and gone at the end.
//
// Invariant: a namespace lives as long as its object (and the sockets opened in it), and nothing of
// it has a name outside: a test that is killed leaves nothing behind.
// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN: root, or an ordinary user's
// `unshare --user --net --mount --map-root-user`.
// Thread: an object is used by one thread at a time; Inside changes the calling thread only.

#ifndef XTREME_TESTS_NET_NAMESPACE_H_
#define XTREME_TESTS_NET_NAMESPACE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct nl_sock;
struct rtnl_link;
struct rtnl_route;

namespace xtreme::net {

using MacAddress = std::array<uint8_t, 6>;

class Namespace {
 public:
  // Puts the calling thread into a namespace until the end of the scope: sockets, threads and
  // programs started meanwhile belong to it. Scopes nest.
  class Inside {
   public:
    explicit Inside(const Namespace& space);
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    int outside_fd_;
  };

  // A new namespace with its loopback interface up.
  // Errors: PermissionDenied (says how to run the test), Internal (what the kernel said).
  static absl::StatusOr<std::unique_ptr<Namespace>> Create();
  ~Namespace();

  Namespace(const Namespace&) = delete;
  Namespace& operator=(const Namespace&) = delete;

  // Every call below names an interface of this namespace and fails with NotFound if it has none
  // of that name, with Internal and the kernel's word otherwise.

  absl::Status SetUp(const std::string& interface, bool up = true);
  absl::Status SetMtu(const std::string& interface, uint32_t mtu_bytes);
  absl::Status SetMac(const std::string& interface, const MacAddress& mac);
  // `address` as "10.0.0.1/24".
  absl::Status AddAddress(const std::string& interface, const std::string& address);
  absl::Status RemoveAddress(const std::string& interface, const std::string& address);
  // `destination` as "224.0.0.0/4" or "default"; `gateway` empty for a directly connected one;
  // `mtu` 0: the interface's.
  absl::Status AddRoute(const std::string& destination, const std::string& interface,
                        const std::string& gateway = "", uint32_t mtu = 0);
  // The route to `destination`, new or instead of the one there is.
  absl::Status ReplaceRoute(const std::string& destination, const std::string& interface,
                            const std::string& gateway = "");
  absl::Status RemoveRoute(const std::string& destination, const std::string& interface);
  // A permanent neighbour entry, new or instead of the one there is: no ARP is sent for `address`.
  absl::Status AddNeighbour(const std::string& interface, const std::string& address,
                            const MacAddress& mac);
  absl::Status RemoveInterface(const std::string& interface);

  absl::StatusOr<int> IndexOf(const std::string& interface);
  absl::StatusOr<MacAddress> MacOf(const std::string& interface);
  // Whether there is an interface whose name begins so.
  absl::StatusOr<bool> HasInterfaceNamed(const std::string& prefix);

  // `name` as "net.ipv4.igmp_max_memberships".
  absl::Status SetSysctl(const std::string& name, const std::string& value);

  // For setns; the object's.
  int fd() const { return fd_; }

 private:
  friend absl::Status ConnectByVeth(Namespace& a, const std::string& name_a, Namespace& b,
                                    const std::string& name_b);

  Namespace(int fd, nl_sock* netlink);
  absl::Status Change(const std::string& interface, rtnl_link* change);
  absl::Status ChangeRoute(const std::string& destination, const std::string& interface,
                           const std::string& gateway,
                           const std::function<int(nl_sock*, rtnl_route*)>& change);
  absl::Status ChangeAddress(const std::string& interface, const std::string& address, bool add);

  const int fd_;
  nl_sock* const netlink_;
};

// Joins `a` and `b` (which may be the same) by a veth pair of these names; both ends come up, and
// neither speaks IPv6 by itself.
absl::Status ConnectByVeth(Namespace& a, const std::string& name_a, Namespace& b,
                           const std::string& name_b);

}  // namespace xtreme::net

#endif  // XTREME_TESTS_NET_NAMESPACE_H_
