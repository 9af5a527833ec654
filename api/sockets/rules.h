// SPDX-License-Identifier: Apache-2.0
//
// Rules: which sockets are offloaded, in the grammar of VMA's configuration file:
//
//   application-id PROGRAM [ID]
//   use xtreme|vma|os ROLE ADDRESS[/BITS]|*:PORT[-PORT]|* [:ADDRESS[/BITS]|*:PORT[-PORT]|*]
//
// PROGRAM: as a shell matches names of files. ROLE: tcp_server, tcp_client, udp_sender,
// udp_receiver, udp_connect. A `use` line belongs to the application-id line above it. The first
// rule that matches decides; no rule: offloaded. The address is the peer's, and a second one ours,
// of tcp_client and udp_connect; of udp_sender it is where a datagram goes to, of others it is
// ours. '#' begins a comment.
// Threads: a plain value.

#ifndef XTREME_API_SOCKETS_RULES_H_
#define XTREME_API_SOCKETS_RULES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stack/wire/address.h"

namespace xtreme::sockets {

enum class Role : uint8_t { kTcpServer, kTcpClient, kUdpSender, kUdpReceiver, kUdpConnect };

class Rules {
 public:
  // Appends what `text` has for this program: `program` its name, `id` its application id. "" or
  // "LINE:COLUMN: what was expected", and nothing was appended.
  std::string Append(std::string_view text, std::string_view program, std::string_view id);
  // Puts one `use` line before all others.
  std::string Prepend(std::string_view line);

  // Whether a socket in `role` with these ends, in a rule's order, is offloaded; `line`: the rule
  // that says so.
  bool Offloads(Role role, const wire::Endpoint& first, const wire::Endpoint& second,
                std::string* line) const;
  // Whether any rule is of udp_sender.
  bool HasSenders() const;
  size_t size() const { return rules_.size(); }

 private:
  struct Range {
    wire::Ipv4Prefix addresses;  // Length 0: all.
    uint16_t first_port = 0;
    uint16_t last_port = 0xFFFF;

    bool Contains(const wire::Endpoint& endpoint) const {
      return addresses.Contains(endpoint.address) && endpoint.port >= first_port &&
             endpoint.port <= last_port;
    }
  };
  struct Rule {
    bool offload = true;
    Role role = Role::kTcpServer;
    Range first;
    std::optional<Range> second;
    std::string line;
  };
  class Line;

  std::vector<Rule> rules_;
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_RULES_H_
