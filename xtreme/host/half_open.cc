// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/half_open.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <sys/socket.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace xtreme::host {
namespace {

struct Search {
  wire::Endpoint local;
  uint32_t found = 0;
};

// The IPv4 peers of an IPv6 socket come to an IPv4-mapped address.
bool IsAt(const inet_diag_msg& connection, const wire::Endpoint& local) {
  const bool mapped = connection.idiag_family == AF_INET6;
  const auto& address = connection.id.idiag_src;
  if (mapped && (address[0] != 0 || address[1] != 0 || address[2] != htonl(0xffff))) return false;
  if (connection.id.idiag_sport != htons(local.port)) return false;
  return local.address.IsAny() || ntohl(address[mapped ? 3 : 0]) == local.address.value();
}

int Visit(nl_msg* message, void* context) {
  const nlmsghdr* const header = nlmsg_hdr(message);
  if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      nlmsg_datalen(header) < static_cast<int>(sizeof(inet_diag_msg))) {
    return NL_SKIP;
  }
  auto& search = *static_cast<Search*>(context);
  search.found += IsAt(*static_cast<const inet_diag_msg*>(nlmsg_data(header)), search.local);
  return NL_OK;
}

int Ask(nl_sock* socket, uint8_t family, const wire::Endpoint& local) {
  inet_diag_req_v2 request{};
  request.sdiag_family = family;
  request.sdiag_protocol = IPPROTO_TCP;
  request.idiag_states = 1u << TCP_SYN_RECV;
  request.id.idiag_sport = htons(local.port);
  if (const int result = nl_send_simple(socket, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request,
                                        sizeof request);
      result < 0) {
    return result;
  }
  return nl_recvmsgs_default(socket);
}

}  // namespace

absl::StatusOr<uint32_t> CountHalfOpen(const wire::Endpoint& local) {
  const std::unique_ptr<nl_sock, void (*)(nl_sock*)> socket(nl_socket_alloc(), nl_socket_free);
  if (socket == nullptr) return absl::InternalError("look for half-open connections: no memory");
  Search search{.local = local};
  nl_socket_modify_cb(socket.get(), NL_CB_VALID, NL_CB_CUSTOM, Visit, &search);
  int result = nl_connect(socket.get(), NETLINK_SOCK_DIAG);
  for (const uint8_t family : {AF_INET, AF_INET6}) {
    if (result >= 0) result = Ask(socket.get(), family, local);
  }
  if (result < 0) {
    return absl::InternalError(
        absl::StrCat("look for half-open connections: ", nl_geterror(result)));
  }
  return search.found;
}

}  // namespace xtreme::host
