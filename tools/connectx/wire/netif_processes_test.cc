// SPDX-License-Identifier: Apache-2.0
//
// Several processes on one interface, and what is left of a process that is gone. The other process
// is a forked child that serves one-letter orders on a socket.

#include <gtest/gtest.h>
#include <nftables/libnftables.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>

#include "tools/connectx/wire/netif_fixture.h"

namespace xtreme::connectx {
namespace {

class NetifProcessesTest : public NetifTest {
 protected:
  // A process with a wire of its own on the same interface.
  class Process {
   public:
    // Returns when the child has opened its wire and `rule` is in force.
    Process(const std::function<std::unique_ptr<NetworkInterface>()>& open, const WireRule& rule) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
      pid_ = fork();
      if (pid_ == 0) {
        close(ends[0]);
        Serve(open, rule, ends[1]);
      }
      close(ends[1]);
      socket_ = ends[0];
      EXPECT_EQ(Read(), 0) << "the child opened no wire";
    }

    ~Process() {
      if (pid_ > 0) Quit();
      close(socket_);
    }

    // How many frames wait at the child's wire.
    int Drain() {
      EXPECT_EQ(send(socket_, "d", 1, 0), 1);
      return Read();
    }

    void Quit() {
      EXPECT_EQ(send(socket_, "q", 1, 0), 1);
      Reap();
    }

    void Kill() {
      kill(pid_, SIGKILL);
      Reap();
    }

   private:
    [[noreturn]] static void Serve(const std::function<std::unique_ptr<NetworkInterface>()>& open,
                                   const WireRule& rule, int socket) {
      std::unique_ptr<NetworkInterface> wire = open();
      int answer = wire != nullptr && wire->AddRule(rule).ok() ? 0 : -1;
      FrameList frames;
      char order = 0;
      while (send(socket, &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer &&
             recv(socket, &order, 1, 0) == 1 && order == 'd') {
        answer = 0;
        while (const int n = wire->Receive(frames, 64, 0)) answer += n;
      }
      wire.reset();
      _exit(0);
    }

    int Read() {
      int answer = -1;
      EXPECT_EQ(recv(socket_, &answer, sizeof answer, 0), static_cast<ssize_t>(sizeof answer));
      return answer;
    }

    void Reap() {
      waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }

    pid_t pid_ = -1;
    int socket_ = -1;
  };

  std::unique_ptr<Process> StartProcess(const WireRule& rule) {
    return std::make_unique<Process>([this] { return OpenWire(); }, rule);
  }

  // What nftables has in the host's namespace.
  std::string Tables() {
    net::Namespace::Inside inside(*host_);
    nft_ctx* context = nft_ctx_new(NFT_CTX_DEFAULT);
    nft_ctx_buffer_output(context);
    EXPECT_EQ(nft_run_cmd_from_buffer(context, "list tables"), 0);
    std::string tables = nft_ctx_get_output_buffer(context);
    nft_ctx_free(context);
    return tables;
  }

  bool HasPrivateVeth() { return host_->HasInterfaceNamed("cx").value_or(true); }
};

TEST_F(NetifProcessesTest, EqualRulesGiveEachProcessOneCopyAndTheKernelNone) {
  const int kernel = HostSocket(5000);
  auto a = StartProcess(PortRule(5000));
  auto b = StartProcess(PortRule(5000));
  auto c = OpenWire();
  ASSERT_EQ(c->AddRule(PortRule(5000)), absl::OkStatus());
  for (int i = 0; i < 10; ++i) SendFromPeer(5000);
  EXPECT_EQ(a->Drain(), 10);
  EXPECT_EQ(b->Drain(), 10);
  EXPECT_EQ(Drain(*c), 10);
  EXPECT_EQ(CountDatagrams(kernel), 0);

  a->Quit();
  for (int i = 0; i < 10; ++i) SendFromPeer(5000);
  EXPECT_EQ(b->Drain(), 10);
  EXPECT_EQ(Drain(*c), 10);
  EXPECT_EQ(CountDatagrams(kernel), 0);
}

TEST_F(NetifProcessesTest, KernelGetsNoCopyWhileOneProcessTrapsAndAnotherDoesNot) {
  const int kernel = HostSocket(5000);
  auto traps = StartProcess(PortRule(5000));
  WireRule both = PortRule(5000);
  both.dont_trap = true;
  auto copies = OpenWire();
  ASSERT_EQ(copies->AddRule(both), absl::OkStatus());
  SendFromPeer(5000);
  EXPECT_EQ(traps->Drain(), 1);
  EXPECT_EQ(Drain(*copies), 1);
  EXPECT_EQ(CountDatagrams(kernel), 0);
  traps->Quit();
  SendFromPeer(5000);
  EXPECT_EQ(Drain(*copies), 1);
  EXPECT_EQ(CountDatagrams(kernel), 1);
}

TEST_F(NetifProcessesTest, TwoWiresOfOneProcessAreTwoProcessesToTheInterface) {
  auto a = OpenWire();
  auto b = OpenWire();
  ASSERT_EQ(a->AddRule(PortRule(5000)), absl::OkStatus());
  ASSERT_EQ(b->AddRule(PortRule(5000)), absl::OkStatus());
  SendFromPeer(5000);
  EXPECT_EQ(Drain(*a), 1);
  EXPECT_EQ(Drain(*b), 1);
}

// libnftables reads a table back when another has changed.
TEST_F(NetifProcessesTest, RulesGoOnBeingAddedAndRemovedWhateverOthersChange) {
  WireRule whole{.dst_mac = host_mac_,
                 .src_ip = kPeerIp,
                 .src_ip_mask = ~0u,
                 .dst_ip = kHostIp,
                 .dst_ip_mask = ~0u,
                 .protocol = IPPROTO_UDP,
                 .src_port = 4000,
                 .dst_port = 5000};
  whole.dst_mac_mask.fill(0xff);
  WireRule from = whole;
  from.src_mac = peer_mac_;
  from.src_mac_mask.fill(0xff);
  WireRule tagged = whole;
  tagged.vlan = 7;
  const WireRule ipv6{.ethertype = 0x86dd, .protocol = IPPROTO_UDP, .dst_port = 5000};
  for (WireRule rule : {whole, from, tagged, ipv6}) {
    auto wire = OpenWire();
    ASSERT_EQ(wire->AddRule(rule), absl::OkStatus());
    const auto other = OpenWire();
    const WireRule first = rule;
    rule.dst_port = 5001;
    EXPECT_EQ(wire->AddRule(rule), absl::OkStatus());
    EXPECT_EQ(wire->RemoveRule(first), absl::OkStatus());
    SendRawFromPeer(Encode(FrameToHost(5000)));
    SendRawFromPeer(Encode(FrameToHost(5001)));
    const bool matches = rule.vlan != 7 && rule.ethertype != 0x86dd;
    EXPECT_EQ(Drain(*wire), matches ? 1 : 0);
  }
}

TEST_F(NetifProcessesTest, FramesOfOneProcessReachAnotherOnTheInterfaceAndNotTheirSender) {
  const int peer = PeerSocket(5000);
  WireRule multicast_or_not{.protocol = IPPROTO_UDP, .dst_port = 5000};
  auto other = StartProcess(multicast_or_not);
  auto sender = OpenWire();
  ASSERT_EQ(sender->AddRule(multicast_or_not), absl::OkStatus());
  for (int i = 0; i < 10; ++i) sender->Transmit(Encode(FrameToPeer(5000)), 0);
  sender->Flush();
  EXPECT_EQ(other->Drain(), 10);
  EXPECT_EQ(Drain(*sender), 0) << "its own come back to it";
  EXPECT_EQ(CountDatagrams(peer), 10) << "they leave the interface too";
}

TEST_F(NetifProcessesTest, FramesOfTheKernelThatLeaveAreNotLooped) {
  auto wire = OpenWire();
  ASSERT_EQ(wire->AddRule({.protocol = IPPROTO_UDP, .dst_port = 5000}), absl::OkStatus());
  const int peer = PeerSocket(5000);
  const int kernel = HostSocket(6000);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(kPeerIp);
  to.sin_port = htons(5000);
  EXPECT_EQ(sendto(kernel, "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to), 1);
  EXPECT_EQ(CountDatagrams(peer), 1);
  EXPECT_EQ(Drain(*wire), 0);
}

TEST_F(NetifProcessesTest, DestroyedWireLeavesNothing) {
  {
    auto wire = OpenWire();
    ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
    EXPECT_TRUE(HasPrivateVeth());
    EXPECT_NE(Tables().find("xtreme_connectx_"), std::string::npos);
  }
  EXPECT_FALSE(HasPrivateVeth());
  EXPECT_EQ(Tables(), "");
}

TEST_F(NetifProcessesTest, KilledProcessGivesItsFramesBackAndTheNextOpenRemovesTheRest) {
  const int kernel = HostSocket(5000);
  auto process = StartProcess(PortRule(5000));
  SendFromPeer(5000);
  EXPECT_EQ(CountDatagrams(kernel), 0);
  process->Kill();
  SendFromPeer(5000);
  EXPECT_EQ(CountDatagrams(kernel), 1) << "the table went with its owner";
  EXPECT_TRUE(HasPrivateVeth());
  OpenWire().reset();
  EXPECT_FALSE(HasPrivateVeth());
  EXPECT_EQ(Tables(), "");
}

TEST_F(NetifProcessesTest, OpenRemovesNothingOfTheLiving) {
  auto process = StartProcess(PortRule(5000));
  OpenWire().reset();
  SendFromPeer(5000);
  EXPECT_EQ(process->Drain(), 1);
}

}  // namespace
}  // namespace xtreme::connectx
