// SPDX-License-Identifier: Apache-2.0
//
// Two programs that carry plans (stream_end.h) to their end: one on a ring, one on kernel sockets.
// Each either listens or connects.
//
// All connections have the same plan, and each bytes of its own, by the client's port. Threads:
// each program its own.

#ifndef XTREME_TESTS_E2E_STREAM_PROGRAMS_H_
#define XTREME_TESTS_E2E_STREAM_PROGRAMS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/xtreme.hpp"
#include "tests/e2e/stream_end.h"
#include "tests/net/kernel_tcp.h"

namespace xtreme::e2e {

// What takes longer has failed. A SYN that is lost four times in a row takes 15 s.
inline constexpr int64_t kProgramNs = 60'000'000'000;

// What became of all connections: "" for each that carried its plan.
using Verdicts = std::vector<std::string>;

class RingProgram {
 public:
  RingProgram(Ring* ring, const Plan& plan) : ring_(ring), plan_(plan) {}

  // Starts to listen and waits until that stands; false: it does not.
  bool Listen(uint16_t port, const TcpOptions& options);
  void Connect(const xtreme_address& to, int connections, const TcpOptions& options);
  // Until `connections` have ended in order, or the time is over.
  Verdicts Run(int connections);

 private:
  struct Stream {
    TcpSocket socket;
    std::unique_ptr<StreamEnd> end;  // Once it is connected.
    bool blocked = false;  // Until TX_SPACE.
    std::string verdict;   // Once it has terminated.
    bool terminated = false;
  };

  void On(Completion& completion);
  void OnPacket(Completion& packet, Stream* stream);
  void Send(Stream* stream);
  static std::string VerdictOf(const Stream& stream);
  static std::string WhyNotTerminated(const Stream& stream);

  Ring* const ring_;
  const Plan plan_;
  TcpSocket listener_;
  bool listening_ = false;
  std::map<uint64_t, Stream> streams_;  // By handle.
  int terminated_ = 0;
};

class KernelProgram {
 public:
  explicit KernelProgram(const Plan& plan) : plan_(plan) {}

  void Listen(net::KernelTcp listener) { listener_ = std::move(listener); }
  void Add(net::KernelTcp connection, bool is_client);
  // As RingProgram's.
  Verdicts Run(int connections);

 private:
  struct Stream {
    net::KernelTcp socket;
    std::unique_ptr<StreamEnd> end;
    bool connected = true;
    std::string broken;  // An errno's text.
  };

  static bool Over(const Stream& stream) { return stream.end->Done() || !stream.broken.empty(); }
  void Await(int connections);
  void Send(Stream* stream);
  void Receive(Stream* stream);

  const Plan plan_;
  net::KernelTcp listener_;
  std::vector<Stream> streams_;
};

}  // namespace xtreme::e2e

#endif  // XTREME_TESTS_E2E_STREAM_PROGRAMS_H_
