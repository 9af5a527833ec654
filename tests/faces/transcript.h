// SPDX-License-Identifier: Apache-2.0
//
// What programs have in common that make socket calls and write down what each said: run by the
// kernel and by rings, their transcripts are to be the same.
//
// Invariant: after each call whatever is under way has arrived (Settle), so that nothing depends on
// time; numbers that the host chooses are not written. Threads: one.

#ifndef XTREME_TESTS_FACES_TRANSCRIPT_H_
#define XTREME_TESTS_FACES_TRANSCRIPT_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <thread>

#include "tests/faces/differential.h"

namespace xtreme::faces {

struct Run {
  std::mt19937 random;
  int control = -1;  // To the peer.
  int fence = -1;
  sockaddr_in own{};
  sockaddr_in peer{};
  int fd = -1;   // Of whom the calls are.
  int set = -1;  // An epoll set.
  int listener = -1;
  bool stream = false;

  int Pick(int below) { return static_cast<int>(random() % static_cast<uint32_t>(below)); }
  template <typename T, size_t n>
  T Of(const T (&values)[n]) {
    return values[random() % n];
  }
};

// One case of a program's table.
struct Case {
  const char* name;
  bool connection;  // `run.fd` is a connection; otherwise a datagram socket.
  void (*run)(Run&);
};
constexpr bool kConnection = true;

// From "SOCKET OWN-ADDRESS PEER-ADDRESS", where `argv` begins with the program: connected to the
// peer, with a listener. False: it cannot be.
bool Begin(char** argv, Run* run);

sockaddr* Generic(sockaddr_in* address);
// A call: its result, and its error.
void Say(const char* what, ssize_t result, const std::string& more = "");
std::string Sum(const char* bytes, ssize_t count);

// Once for what the peer sent to have arrived here, and once more for what answers it (an
// acknowledgement, a reset) to have arrived there.
void Settle(Run& run);
// A command to the peer, and its answer, which is written unless `quietly`.
void Tell(Run& run, const std::string& command, bool quietly = false);
// The same, and nothing is written.
std::string AnswerTo(Run& run, const std::string& command);

// The peer sends a datagram, or bytes, and they have arrived.
void Datagram(Run& run, int size = 5);
void Bytes(Run& run, int size = 5);
// The peer does it in 150 ms.
std::thread Later(Run& run, const std::string& command);
void Read(int fd, const char* what = "recv", int flags = MSG_DONTWAIT, size_t size = 100);
void Blocks(int fd, bool blocks);
void SetReceiveTimeout(int fd, int milliseconds);

// Not blocking; bound to `port` unless 0.
int NewSocket(const Run& run, int type, int port);
void WaitUntil(int fd, int16_t events);
// Without Nagle's algorithm, of which there are variants.
void SendAtOnce(const Run& run);

// `run.fd` becomes a connection to the peer, which has accepted it.
void ConnectStream(Run& run);
// `run.fd` becomes a datagram socket, connected to the peer's.
void ConnectDatagrams(Run& run);

// Each with a connection or a datagram socket of its own and an epoll set.
void RunCases(std::span<const Case> cases, Run& run);
// A program of nothing but these; what main() returns.
int RunProgram(int argc, char** argv, std::span<const Case> cases);

}  // namespace xtreme::faces

#endif  // XTREME_TESTS_FACES_TRANSCRIPT_H_
