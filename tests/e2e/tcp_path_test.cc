// SPDX-License-Identifier: Apache-2.0
//
// A ring, a router, and the kernel's TCP behind it: what the router says by ICMP reaches the ring's
// connections, though the kernel beside the ring knows none of them.

#include <cerrno>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "tests/e2e/stream_programs.h"
#include "tests/e2e/tcp_bed.h"
#include "tests/net/kernel_tcp.h"

namespace xtreme::e2e {
namespace {

using net::KernelTcp;

// The bed's kernel is the router; a far host, 10.8.0.2, is behind a link that it sends 1,000 bytes
// into at most.
class TcpPathTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::Status status = bed_.Make(/*seed=*/1);
    auto far = net::Namespace::Create();
    status.Update(far.status());
    ASSERT_TRUE(status.ok()) << status;
    far_ = *std::move(far);
    net::Namespace& router = bed_.kernel();
    status.Update(net::ConnectByVeth(router, "narrow", *far_, "far0"));
    status.Update(router.AddAddress("narrow", "10.8.0.1/24"));
    status.Update(router.SetMtu("narrow", 1'000));
    status.Update(router.SetSysctl("net.ipv4.ip_forward", "1"));
    status.Update(far_->AddAddress("far0", "10.8.0.2/24"));
    status.Update(far_->AddRoute("default", "far0", "10.8.0.1"));
    // The router knows no way to the second.
    for (const char* net : {"10.8.0.0/24", "192.0.2.0/24"}) {
      status.Update(bed_.ring().AddRoute(net, "ring0", TcpBed::kKernelAddress));
    }
    ASSERT_TRUE(status.ok()) << status;
    ring_ = bed_.OpenRing();
    ASSERT_NE(ring_, nullptr);
  }

  uint64_t Counter(std::string_view name) const {
    for (const xtreme_counter& counter : ring_->Counters()) {
      if (name == counter.name) return counter.value;
    }
    return ~uint64_t{0};
  }

  TcpBed bed_;
  std::unique_ptr<net::Namespace> far_;
  std::unique_ptr<Ring> ring_;
};

TEST_F(TcpPathTest, BulkCrossesALinkThatIsNarrowerThanItsEnds) {
  // A veth end takes nothing longer than its own MTU, so the way back has short segments only.
  const Plan plan{.from_ring = 1 << 20, .from_kernel = 512};
  RingProgram ours(ring_.get(), plan);
  KernelProgram theirs(plan);
  {
    const net::Namespace::Inside inside(*far_);
    theirs.Listen(KernelTcp::Listen("10.8.0.2", 7'000));
  }
  ours.Connect(*ParseAddress("10.8.0.2:7000"), 1, {});
  auto kernel = std::async(std::launch::async, [&] { return theirs.Run(1); });
  EXPECT_EQ(ours.Run(1), Verdicts(1));
  EXPECT_EQ(kernel.get(), Verdicts(1));
  EXPECT_EQ(Counter("icmp_believed"), 1u);  // Then the segments are short enough.
  EXPECT_EQ(Counter("icmp_no_connection"), 0u);
}

TEST_F(TcpPathTest, NetWithoutARouteIsWhyAConnectTimesOut) {
  auto socket = ring_->ConnectTcp(*ParseAddress("192.0.2.1:7000"),
                                  {.connect_timeout_ns = 500'000'000});
  ASSERT_TRUE(socket.ok()) << socket.error().message;
  int status = -1;
  for (int turn = 0; turn < 1'000 && status < 0; ++turn) {
    for (const Completion& completion : ring_->Wait(10'000'000)) {
      if (completion.kind() == kTerminated) status = completion.status;
    }
  }
  EXPECT_EQ(status, ENETUNREACH);
}

}  // namespace
}  // namespace xtreme::e2e
