// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/kernel_connections.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace xtreme::host {
namespace {

struct Search {
  wire::Endpoint local;
  std::span<const wire::Ipv4Address> own;
  uint32_t found = 0;
};

// Those that a process may have, and SYN-RECEIVED.
constexpr uint32_t kStates = 1u << TCP_ESTABLISHED | 1u << TCP_SYN_RECV | 1u << TCP_FIN_WAIT1 |
                             1u << TCP_FIN_WAIT2 | 1u << TCP_CLOSE_WAIT | 1u << TCP_LAST_ACK |
                             1u << TCP_CLOSING;
// Of these the peer has not acknowledged all yet, whoever has them: SYN, or bytes and FIN.
constexpr uint32_t kUnanswered = 1u << TCP_SYN_RECV | 1u << TCP_FIN_WAIT1 | 1u << TCP_LAST_ACK |
                                 1u << TCP_CLOSING;

// The IPv4 peers of an IPv6 socket come to an IPv4-mapped address, from such.
bool Counts(const inet_diag_msg& connection, const Search& search) {
  const bool mapped = connection.idiag_family == AF_INET6;
  const auto& address = connection.id.idiag_src;
  if (mapped && (address[0] != 0 || address[1] != 0 || address[2] != htonl(0xffff))) return false;
  if (connection.id.idiag_sport != htons(search.local.port)) return false;
  const int last = mapped ? 3 : 0;
  if (ntohl(address[last]) != search.local.address.value()) return false;
  // What no process has, has no inode.
  const bool answered = (1u << connection.idiag_state & kUnanswered) == 0;
  if (answered && connection.idiag_inode == 0) return false;
  const wire::Ipv4Address peer(ntohl(connection.id.idiag_dst[last]));
  return std::ranges::count(search.own, peer) == 0;
}

int Visit(nl_msg* message, void* context) {
  const nlmsghdr* const header = nlmsg_hdr(message);
  if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      nlmsg_datalen(header) < static_cast<int>(sizeof(inet_diag_msg))) {
    return NL_SKIP;
  }
  auto& search = *static_cast<Search*>(context);
  search.found += Counts(*static_cast<const inet_diag_msg*>(nlmsg_data(header)), search);
  return NL_OK;
}

int Ask(nl_sock* socket, uint8_t family, const wire::Endpoint& local) {
  inet_diag_req_v2 request{};
  request.sdiag_family = family;
  request.sdiag_protocol = IPPROTO_TCP;
  request.idiag_states = kStates;
  request.id.idiag_sport = htons(local.port);
  if (const int result = nl_send_simple(socket, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request,
                                        sizeof request);
      result < 0) {
    return result;
  }
  return nl_recvmsgs_default(socket);
}

}  // namespace

absl::StatusOr<uint32_t> CountConnections(const wire::Endpoint& local,
                                          std::span<const wire::Ipv4Address> own) {
  const std::unique_ptr<nl_sock, void (*)(nl_sock*)> socket(nl_socket_alloc(), nl_socket_free);
  if (socket == nullptr) return absl::InternalError("look for connections: no memory");
  Search search{.local = local, .own = own};
  nl_socket_modify_cb(socket.get(), NL_CB_VALID, NL_CB_CUSTOM, Visit, &search);
  int result = nl_connect(socket.get(), NETLINK_SOCK_DIAG);
  for (const uint8_t family : {AF_INET, AF_INET6}) {
    if (result >= 0) result = Ask(socket.get(), family, local);
  }
  if (result < 0) {
    return absl::InternalError(absl::StrCat("look for connections: ", nl_geterror(result)));
  }
  return search.found;
}

}  // namespace xtreme::host
