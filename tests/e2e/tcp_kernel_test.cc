// SPDX-License-Identifier: Apache-2.0
//
// TCP on a ring against the kernel's, as client and as server, with cubic and reno, over a wire
// that loses, repeats and reorders: what one end sent is what the other received, by its hash.

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/stream_programs.h"
#include "tests/e2e/tcp_bed.h"
#include "tests/net/kernel_tcp.h"
#include "tools/connectx/wire/impairment.h"

namespace xtreme::e2e {
namespace {

using net::KernelTcp;

constexpr uint16_t kPort = 7'000;
constexpr uint64_t kSeed = 20'261;

struct Wire {
  const char* name;
  connectx::Impairment impairment;
  uint64_t bulk_bytes;  // What the faults leave time for.
};

const Wire kWires[] = {
    {"Clean", {}, 8 << 20},
    {"Loss01", {.loss = 0.001}, 4 << 20},
    {"Loss1", {.loss = 0.01}, 2 << 20},
    {"Loss5", {.loss = 0.05}, 256 << 10},
    {"Duplication", {.duplication = 0.05}, 2 << 20},
    {"Reordering", {.reordering = 0.05, .reorder_hold_ns = 500'000}, 2 << 20},
    {"Hostile",
     {.loss = 0.01, .duplication = 0.02, .reordering = 0.02, .reorder_hold_ns = 300'000},
     1 << 20},
};

enum class Role { kClient, kServer };

struct Case {
  Wire wire;
  Role role;
  const char* congestion;  // The kernel's.
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.wire.name << (c.role == Role::kClient ? "Client" : "Server") << c.congestion;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Wire& wire : kWires) {
    for (const Role role : {Role::kClient, Role::kServer}) {
      // Every wire meets both, the clean one in both roles.
      const bool cubic = (role == Role::kClient) == (wire.impairment.reordering == 0);
      cases.push_back({wire, role, cubic ? "cubic" : "reno"});
    }
  }
  cases.push_back({kWires[0], Role::kClient, "reno"});
  cases.push_back({kWires[0], Role::kServer, "cubic"});
  return cases;
}

class TcpKernelTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const absl::Status made = bed_.Make(kSeed);
    ASSERT_TRUE(made.ok()) << made;
    ring_ = bed_.OpenRing();
    ASSERT_NE(ring_, nullptr);
    bed_.Impair(GetParam().wire.impairment);
  }

  // Repairs soon: a test has not the time that a user has.
  static TcpOptions Options() { return {.backlog = 512, .min_rto_ns = 20'000'000}; }

  static KernelTcp Connect() {
    KernelTcp made = KernelTcp::Connect(TcpBed::kRingAddress, kPort, GetParam().congestion);
    made.SetOption(IPPROTO_TCP, TCP_NODELAY, 1);
    return made;
  }
  KernelTcp ListenInKernel() {
    const net::Namespace::Inside inside(bed_.kernel());
    KernelTcp listener = KernelTcp::Listen(TcpBed::kKernelAddress, kPort, GetParam().congestion);
    listener.SetOption(IPPROTO_TCP, TCP_NODELAY, 1);  // Inherited.
    return listener;
  }

  // Carries the plan over so many connections at once.
  void Carry(const Plan& plan, int connections = 1) {
    RingProgram ours(ring_.get(), plan);
    KernelProgram theirs(plan);
    if (GetParam().role == Role::kClient) {
      theirs.Listen(ListenInKernel());
      ours.Connect(*ParseAddress("10.9.0.1:7000"), connections, Options());
    } else {
      ASSERT_TRUE(ours.Listen(kPort, Options()));
      const net::Namespace::Inside inside(bed_.kernel());
      for (int i = 0; i < connections; ++i) theirs.Add(Connect(), true);
    }
    auto kernel = std::async(std::launch::async, [&] { return theirs.Run(connections); });
    EXPECT_EQ(Unwell(ours.Run(connections)), Verdicts()) << "at the ring; seed " << kSeed;
    EXPECT_EQ(Unwell(kernel.get()), Verdicts()) << "at the kernel; seed " << kSeed;
    if (HasFailure()) ADD_FAILURE() << WhatWasCounted();
  }

  static Verdicts Unwell(Verdicts verdicts) {
    std::erase(verdicts, "");
    return verdicts;
  }

  // By the ring, and by the kernel under it, which resets what no rule keeps from it.
  std::string WhatWasCounted() const {
    std::string all = "counters:";
    for (const xtreme_counter& counter : ring_->Counters()) {
      if (counter.value == 0) continue;
      all += std::string(" ") + counter.name + "=" + std::to_string(counter.value);
    }
    std::ifstream kernel("/proc/thread-self/net/snmp");
    for (std::string line; std::getline(kernel, line);) {
      if (line.starts_with("Tcp:") || line.starts_with("Ip:")) all += "\n" + line;
    }
    return all;
  }

  TcpBed bed_;
  std::unique_ptr<Ring> ring_;
};

TEST_P(TcpKernelTest, BulkArrivesAtTheKernelAsItWasSent) {
  Carry({.from_ring = GetParam().wire.bulk_bytes});
  // The device cut what it could.
  for (const xtreme_counter& counter : ring_->Counters()) {
    const std::string_view name = counter.name;
    const bool counts_runs = name == "runs" || name == "tx_segmented";
    EXPECT_TRUE(!counts_runs || counter.value > 0) << name;
  }
}

TEST_P(TcpKernelTest, BulkArrivesAtTheRingAsItWasSent) {
  Carry({.from_kernel = GetParam().wire.bulk_bytes});
}

TEST_P(TcpKernelTest, BulkCrossesBothWaysAtOnce) {
  const uint64_t bytes = GetParam().wire.bulk_bytes / 2;
  Carry({.from_ring = bytes, .from_kernel = bytes});
  const connectx::Impairment& faults = GetParam().wire.impairment;
  EXPECT_EQ(bed_.Hit("lost") > 0, faults.loss > 0);
  EXPECT_EQ(bed_.Hit("duplicated") > 0, faults.duplication > 0);
  EXPECT_EQ(bed_.Hit("reordered") > 0, faults.reordering > 0);
}

TEST_P(TcpKernelTest, SmallMessagesAreAnsweredOneByOne) {
  const uint64_t messages = GetParam().wire.impairment.loss > 0.02 ? 20 : 100;
  Carry({.from_ring = messages * 33, .from_kernel = messages * 33, .message = 33,
         .lock_step = true});
}

TEST_P(TcpKernelTest, ManyConnectionsCarryTheirOwnBytes) {
  Carry({.from_ring = 3'000, .from_kernel = 5'000}, 64);
}

TEST_P(TcpKernelTest, HalfClosedConnectionGoesOnTheOtherWay) {
  Carry({.from_ring = 40'000, .from_kernel = 60'000, .kernel_after_end = true});
}

INSTANTIATE_TEST_SUITE_P(Wires, TcpKernelTest, testing::ValuesIn(Cases()),
                         [](const testing::TestParamInfo<Case>& info) {
                           return testing::PrintToString(info.param);
                         });

// --- Resets -------------------------------------------------------------------------------------

class TcpKernelResetTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status made = bed_.Make(kSeed);
    ASSERT_TRUE(made.ok()) << made;
    ring_ = bed_.OpenRing();
    ASSERT_NE(ring_, nullptr);
    const net::Namespace::Inside inside(bed_.kernel());
    KernelTcp listener = KernelTcp::Listen(TcpBed::kKernelAddress, kPort);
    auto socket = ring_->ConnectTcp(*ParseAddress("10.9.0.1:7000"));
    ASSERT_TRUE(socket.ok()) << socket.error().message;
    socket_ = *std::move(socket);
    EXPECT_EQ(Await(kEstablished), 0);
    peer_ = listener.Accept();
    ASSERT_TRUE(peer_.is_open());
  }

  // The status of the next completion of this kind; -1: none came.
  int Await(Kind kind) {
    for (int turn = 0; turn < 1'000; ++turn) {
      for (const Completion& completion : ring_->Wait(10'000'000)) {
        if (completion.kind() == kind) return completion.status;
      }
    }
    return -1;
  }

  TcpBed bed_;
  std::unique_ptr<Ring> ring_;
  TcpSocket socket_;
  KernelTcp peer_;
};

TEST_F(TcpKernelResetTest, ResetOfTheKernelEndsTheConnection) {
  peer_.Reset();
  EXPECT_EQ(Await(kTerminated), ECONNRESET);
}

TEST_F(TcpKernelResetTest, AbortResetsTheKernelsConnection) {
  socket_.Abort();
  EXPECT_EQ(Await(kTerminated), ECONNABORTED);
  EXPECT_EQ(peer_.ReceiveEnd(), strerror(ECONNRESET));
}

TEST_F(TcpKernelResetTest, RingThatIsClosedResetsWhatIsOpen) {
  socket_.Release();
  ring_.reset();
  EXPECT_EQ(peer_.ReceiveEnd(), strerror(ECONNRESET));
}

TEST_F(TcpKernelResetTest, DataForAClosedSocketResetsTheKernelsConnection) {
  socket_.Close();
  EXPECT_EQ(peer_.ReceiveEnd(), "");  // Our FIN.
  peer_.Send("too late");
  EXPECT_EQ(Await(kTerminated), ECONNRESET);
  EXPECT_TRUE(peer_.AwaitHangUp());
}

// --- Listeners ----------------------------------------------------------------------------------

TEST(TcpKernelListenerTest, ConnectionOutlivesTheListenerThatAcceptedIt) {
  TcpBed bed;
  const absl::Status made = bed.Make(kSeed);
  ASSERT_TRUE(made.ok()) << made;
  const std::unique_ptr<Ring> ring = bed.OpenRing();
  ASSERT_NE(ring, nullptr);
  auto listener = ring->ListenTcp({.local = ":7000"});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  TcpSocket child;
  std::string received;
  // Until a completion of this kind came.
  const auto await = [&](Kind kind) {
    for (int turn = 0; turn < 1'000; ++turn) {
      bool came = false;
      for (const Completion& completion : ring->Wait(10'000'000)) {
        if (completion.kind() == kAccepted) child = TcpSocket(completion.socket);
        if (completion.kind() == kPacket) {
          received.append(completion.bytes().begin(), completion.bytes().end());
        }
        came |= completion.kind() == kind;
      }
      if (came) return true;
    }
    return false;
  };
  ASSERT_TRUE(await(kOpDone));
  const net::Namespace::Inside inside(bed.kernel());
  KernelTcp peer = KernelTcp::Connect(TcpBed::kRingAddress, kPort);
  ASSERT_TRUE(await(kAccepted));
  listener->Close();
  ASSERT_TRUE(await(kTerminated));
  peer.Send("question");
  ASSERT_TRUE(await(kPacket));
  EXPECT_EQ(received, "question");
  const std::string answer = "answer";
  child.Send({reinterpret_cast<const uint8_t*>(answer.data()), answer.size()});
  EXPECT_EQ(peer.Receive(6), "answer");
}

}  // namespace
}  // namespace xtreme::e2e
