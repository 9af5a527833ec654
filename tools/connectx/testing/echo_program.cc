// SPDX-License-Identifier: Apache-2.0
//
// A user's program on sockets, for the test of connectx_test: `serve PORT` answers datagrams, `ask
// PORT ADDRESS...` sends a hundred to each address and succeeds when all were answered, and of each
// address some had to be sent again.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kQuestions = 100;
constexpr int kPatienceMs = 200;

sockaddr_in AddressOf(const char* ip, const char* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
  ::inet_pton(AF_INET, ip, &address.sin_addr);
  return address;
}

int Serve(int fd, const char* port) {
  const sockaddr_in own = AddressOf("0.0.0.0", port);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0) return EXIT_FAILURE;
  for (;;) {
    int question = 0;
    sockaddr_in from{};
    socklen_t length = sizeof(from);
    auto* const peer = reinterpret_cast<sockaddr*>(&from);
    if (::recvfrom(fd, &question, sizeof(question), 0, peer, &length) < 0) return EXIT_FAILURE;
    ::sendto(fd, &question, sizeof(question), 0, peer, length);
  }
}

// Whether `question` is answered before the time is over.
bool IsAnswered(int fd, int question) {
  for (;;) {
    pollfd source{.fd = fd, .events = POLLIN, .revents = 0};
    if (::poll(&source, 1, kPatienceMs) <= 0) return false;
    int answer = -1;
    if (::recv(fd, &answer, sizeof(answer), 0) == sizeof(answer) && answer == question) return true;
  }
}

int Ask(int fd, const char* ip, const char* port) {
  const sockaddr_in peer = AddressOf(ip, port);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) != 0) {
    return EXIT_FAILURE;
  }
  int sent_again = -kQuestions;
  for (int question = 0; question < kQuestions; ++question) {
    do {
      ::send(fd, &question, sizeof(question), 0);
      ++sent_again;
    } while (!IsAnswered(fd, question));
  }
  return sent_again > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "serve") == 0) {
    return Serve(::socket(AF_INET, SOCK_DGRAM, 0), argv[2]);
  }
  int result = argc > 3 ? EXIT_SUCCESS : EXIT_FAILURE;
  for (int i = 3; i < argc; ++i) {
    const int asked = Ask(::socket(AF_INET, SOCK_DGRAM, 0), argv[i], argv[2]);
    if (asked != EXIT_SUCCESS) result = asked;
  }
  return result;
}
