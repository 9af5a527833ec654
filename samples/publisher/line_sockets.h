// SPDX-License-Identifier: Apache-2.0
//
// The publisher's kernel sockets: one that sends to the lines' groups, one that is asked to send
// again. Nothing fails silently: a send that cannot be made is tried again, and counted.

#ifndef XTREME_SAMPLES_PUBLISHER_LINE_SOCKETS_H_
#define XTREME_SAMPLES_PUBLISHER_LINE_SOCKETS_H_

#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace publisher {

// "a.b.c.d:port" as a socket address; nothing when it is not of that form.
std::optional<sockaddr_in> ParseEndpoint(const std::string& text);

class LineSockets {
 public:
  struct Counters {
    uint64_t datagrams = 0;
    uint64_t retried_sends = 0;
    uint64_t failed_sends = 0;
  };
  struct Asked {
    sockaddr_in from;
    size_t length;
  };

  LineSockets() = default;
  LineSockets(const LineSockets&) = delete;
  LineSockets& operator=(const LineSockets&) = delete;
  ~LineSockets();

  // Opens both, bound to `address` (an interface's; multicast leaves by it), the second to `port`
  // (0: none). "" or what failed.
  std::string Open(const std::string& address, uint16_t port);

  // False: given up after some tries (counted).
  bool Send(const sockaddr_in& to, std::span<const uint8_t> datagram);
  // A request that waits, copied to `into`.
  std::optional<Asked> Receive(std::span<uint8_t> into);
  // Answers from the socket that was asked.
  bool Answer(const sockaddr_in& to, std::span<const uint8_t> datagram);

  const Counters& counters() const { return counters_; }

 private:
  bool SendFrom(int fd, const sockaddr_in& to, std::span<const uint8_t> datagram);

  int send_fd_ = -1;
  int request_fd_ = -1;
  Counters counters_;
};

}  // namespace publisher

#endif  // XTREME_SAMPLES_PUBLISHER_LINE_SOCKETS_H_
