// SPDX-License-Identifier: Apache-2.0
//
// The other end of differential_subject: a plain program on the kernel that does what it is told by
// a Unix socket, one command a message, and answers in words that go into the transcript.
//
//   differential_peer SOCKET OWN-ADDRESS SUBJECT-ADDRESS
//
// Invariant: the fence port echoes at once, so who has its echo knows that all it sent before, and
// all that was told before to be sent to it, has arrived. Threads: one.

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "tests/faces/differential.h"

namespace xtreme::faces {
namespace {

class Peer {
 public:
  Peer(const char* own, const char* subject)
      : own_(own),
        subject_(subject),
        fence_(Bound(SOCK_DGRAM, kFencePort)),
        listener_(Bound(SOCK_STREAM, kPeerTcpPort)),
        strays_(Bound(SOCK_DGRAM, kPeerStrayPort)),
        datagrams_(Bound(SOCK_DGRAM, kPeerUdpPort)) {
    listen(listener_, 64);
  }

  // `port`: of the subject.
  std::string Do(const std::string& command, int number, int port) {
    if (command == "use") return Use(number);
    if (command == "accept") return Take(accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK));
    if (command == "connect") return Connect(port != 0 ? port : kSubjectTcpPort);
    if (command == "send") return Said(send(stream_, Pattern(number), number, MSG_NOSIGNAL));
    if (command == "receive") return Drain(stream_);
    if (command == "shutdown") return Said(shutdown(stream_, SHUT_WR));
    if (command == "close") return Close(false);
    if (command == "reset") return Close(true);
    if (command == "error") return ErrorOf(stream_);
    if (command == "urgent") return Said(send(stream_, "!", 1, MSG_OOB | MSG_NOSIGNAL));
    if (command == "datagram")
      return SendDatagram(datagrams_, subject_, port != 0 ? port : kSubjectUdpPort, number);
    if (command == "stray") return SendDatagram(strays_, subject_, port, number);
    if (command == "group") return SendDatagram(datagrams_, kDifferentialGroup, port, number);
    if (command == "datagrams") return Drain(datagrams_);
    if (command == "length") return Said(recv(datagrams_, text_, sizeof text_, MSG_DONTWAIT));
    if (command == "deaf") return Deaf(true);
    if (command == "hearing") return Deaf(false);
    if (command == "watch") return Watch();
    if (command == "seen") return Seen();
    return "unknown";
  }
  int fence() const { return fence_; }

 private:
  sockaddr_in Address(const char* text, int port) const {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
    inet_pton(AF_INET, text, &address.sin_addr);
    return address;
  }
  int Bound(int type, int port) const {
    const int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in local = Address(own_, port);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&local), sizeof local) != 0) perror("bind");
    return fd;
  }
  std::string Said(ssize_t result) const {
    return result >= 0 ? std::to_string(result) : strerror(errno);
  }
  std::string Take(int fd) {
    if (stream_ >= 0) close(stream_);
    stream_ = fd;
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd >= 0 ? "connected" : strerror(errno);
  }
  // What is done to "the stream" is done to the one of this number from here on.
  std::string Use(int number) {
    streams_[used_] = stream_;
    used_ = number;
    const auto found = streams_.find(used_);
    stream_ = found == streams_.end() ? -1 : found->second;
    return "done";
  }
  std::string Connect(int port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in to = Address(subject_, port);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return Take(fd);
    const std::string why = strerror(errno);
    close(fd);
    return why;
  }
  static std::string ErrorOf(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return strerror(error);
  }
  // What waits: how much and what it adds up to, and how it ends.
  std::string Drain(int fd) const {
    char bytes[70'000];
    size_t count = 0;
    uint32_t sum = 0;
    ssize_t got = 0;
    while ((got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
      count += static_cast<size_t>(got);
      for (ssize_t i = 0; i < got; ++i) sum = sum * 31 + static_cast<uint8_t>(bytes[i]);
    }
    const std::string end = got == 0 ? "end" : strerror(errno);
    return std::to_string(count) + " bytes, " + std::to_string(sum) + ", " + end;
  }
  std::string Close(bool resets) {
    const linger now{.l_onoff = 1, .l_linger = 0};
    if (resets) setsockopt(stream_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    const int result = stream_ < 0 ? 0 : close(stream_);
    stream_ = -1;
    return std::to_string(result);
  }
  std::string SendDatagram(int fd, const char* host, int port, int number) const {
    const sockaddr_in to = Address(host, port);
    return Said(sendto(fd, Pattern(number), static_cast<size_t>(number), 0,
                       reinterpret_cast<const sockaddr*>(&to), sizeof to));
  }
  // Deaf: datagrams to its port are answered by ICMP.
  std::string Deaf(bool deaf) {
    if (datagrams_ >= 0) close(datagrams_);
    datagrams_ = deaf ? -1 : Bound(SOCK_DGRAM, kPeerUdpPort);
    return "done";
  }

  // From here on it sees what comes.
  std::string Watch() {
    if (frames_ >= 0) close(frames_);
    frames_ = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_IP));
    return frames_ >= 0 ? "watches" : strerror(errno);
  }
  // What the headers said of what came from the subject since, each once: but for the fence.
  std::string Seen() const {
    std::set<std::string> seen;
    uint8_t bytes[2048];
    sockaddr_ll from{};
    socklen_t length = sizeof from;
    auto* const address = reinterpret_cast<sockaddr*>(&from);
    while (recvfrom(frames_, bytes, sizeof bytes, 0, address, &length) > 0) {
      const auto& ip = *reinterpret_cast<const iphdr*>(bytes);
      const uint8_t* const ports = bytes + 4 * ip.ihl;
      const int port = ports[2] << 8 | ports[3];
      const uint16_t fragment = ntohs(ip.frag_off);
      const bool first = (fragment & IP_OFFMASK) == 0;
      const bool datagram = ip.protocol == IPPROTO_UDP;
      const bool skips = from.sll_pkttype == PACKET_OUTGOING || (first && port == kFencePort) ||
                         (!datagram && ip.protocol != IPPROTO_TCP);
      if (skips) continue;
      char name[IF_NAMESIZE] = "";
      char line[128];
      snprintf(line, sizeof line, "%s: %s of %d, tos %#x, ttl %d, %#x; ",
               if_indextoname(static_cast<unsigned>(from.sll_ifindex), name),
               datagram ? "datagram" : "segment", datagram ? ntohs(ip.tot_len) - 4 * ip.ihl : 0,
               ip.tos, ip.ttl, fragment);
      seen.insert(line);
    }
    std::string all;
    for (const std::string& each : seen) all += each;
    return all;
  }

  const char* const own_;
  const char* const subject_;
  const int fence_;
  const int listener_;
  const int strays_;  // Of another port.
  int datagrams_;
  std::map<int, int> streams_;  // By number, but for the one that is used.
  int used_ = 0;
  int stream_ = -1;
  int frames_ = -1;
  char text_[2048];
};

// Until the subject hangs up.
int Serve(Peer& peer, int control) {
  for (;;) {
    pollfd waits[] = {{control, POLLIN, 0}, {peer.fence(), POLLIN, 0}};
    if (poll(waits, 2, 100'000) <= 0) return 1;
    char text[2048];
    sockaddr_in from{};
    socklen_t length = sizeof from;
    auto* const address = reinterpret_cast<sockaddr*>(&from);
    ssize_t got = recvfrom(peer.fence(), text, sizeof text, MSG_DONTWAIT, address, &length);
    if (got >= 0) sendto(peer.fence(), text, static_cast<size_t>(got), 0, address, length);
    if ((waits[0].revents & (POLLIN | POLLHUP)) == 0) continue;
    got = recv(control, text, sizeof text - 1, 0);
    if (got <= 0) return 0;
    text[got] = 0;
    char command[32] = "";
    int number = 0;
    int port = 0;
    sscanf(text, "%31s %d %d", command, &number, &port);
    const std::string answer = peer.Do(command, number, port);
    if (send(control, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return 1;
  }
}

int Main(char** argv) {
  Peer peer(argv[2], argv[3]);
  const int control = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  sockaddr_un name{.sun_family = AF_UNIX};
  strncpy(name.sun_path, argv[1], sizeof name.sun_path - 1);
  unlink(argv[1]);
  if (bind(control, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) perror("bind");
  listen(control, 1);
  puts("ready");
  fflush(stdout);
  return Serve(peer, accept(control, nullptr, nullptr));
}

}  // namespace
}  // namespace xtreme::faces

int main(int argc, char** argv) { return argc == 4 ? xtreme::faces::Main(argv) : 2; }
