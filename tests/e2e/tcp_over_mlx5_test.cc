// SPDX-License-Identifier: Apache-2.0
//
// TCP between two rings, from a connect to both TERMINATEDs, through libmlx5 and a software
// ConnectX, under virtual time.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/e2e/two_rings.h"
#include "xtreme/engine/tcp.h"

namespace xtreme::engine::testing {
namespace {

class TcpOverMlx5Test : public TwoRingsTest {
 protected:
  static constexpr uint16_t kPort = 7000;

  void TearDown() override {
    kept.clear();
    TwoRingsTest::TearDown();
  }

  Handle Listen(RingEnd& end) {
    Handle handle = 0;
    const Outcome opened =
        end.ring->tcp().OpenListener({.local = {{}, kPort}, .user_data = 99}, &handle);
    EXPECT_TRUE(opened.ok()) << opened.text;
    end.Settle();
    return handle;
  }

  Handle Connect(RingEnd& end, wire::Ipv4Address to) {
    Handle handle = 0;
    const Outcome started = end.ring->tcp().Connect({.peer = {to, kPort}}, &handle);
    EXPECT_TRUE(started.ok()) << started.text;
    end.engine->control().RunAndWait([] {});
    return handle;
  }

  // Runs the wire and both rings until neither has anything to tell, for `for_ns` of virtual time.
  void Run(uint64_t for_ns = 100'000'000) {
    const uint64_t end = now + for_ns;
    while (now < end) {
      now += 100'000;
      rig->Step();
      Take(*a, &from_a);
      Take(*b, &from_b);
    }
  }

  static std::string Received(const std::vector<Completion>& completions, Handle socket) {
    std::string bytes;
    for (const Completion& completion : completions) {
      if (completion.kind != Kind::kPacket || completion.socket != socket) continue;
      uint64_t left = completion.length;
      for (const packet::Buffer* link = completion.buffer; link != nullptr; link = link->next) {
        bytes.append(reinterpret_cast<const char*>(link->data), link->length);
        left -= link->length;
      }
      EXPECT_EQ(left, 0u);
    }
    return bytes;
  }

  SendResult Send(RingEnd& end, Handle socket, std::string_view bytes, SendOptions options = {}) {
    Tcp& tcp = end.ring->tcp();
    return tcp.Send(tcp.Find(socket),
                    {.data = reinterpret_cast<const uint8_t*>(bytes.data()),
                     .length = bytes.size()},
                    options);
  }

  static std::vector<Kind> Kinds(const std::vector<Completion>& completions) {
    std::vector<Kind> kinds;
    for (const Completion& completion : completions) kinds.push_back(completion.kind);
    return kinds;
  }

  std::vector<Completion> from_a;
  std::vector<Completion> from_b;

 private:
  struct Release {
    void operator()(packet::Buffer* chain) const { packet::BufferPool::ReleaseChain(chain); }
  };
  void Take(RingEnd& end, std::vector<Completion>* all) {
    for (const Completion& completion : end.Poll()) {
      all->push_back(completion);
      if (completion.kind == Kind::kPacket) kept.emplace_back(completion.buffer);
    }
  }
  std::vector<std::unique_ptr<packet::Buffer, Release>> kept;
};

TEST_F(TcpOverMlx5Test, AConnectionLivesFromConnectToBothTerminateds) {
  const Handle listener = Listen(*b);
  const Handle client = Connect(*a, kB);
  Run();
  ASSERT_EQ(Kinds(from_a), std::vector<Kind>{Kind::kEstablished}) << from_a[0].status;
  ASSERT_EQ(Kinds(from_b), std::vector<Kind>{Kind::kAccepted});
  EXPECT_EQ(from_a[0].socket, client);
  const Handle child = from_b[0].socket;
  EXPECT_EQ(from_b[0].cookie, listener);
  EXPECT_EQ(from_b[0].user_data, 99u);
  EXPECT_EQ(from_b[0].destination_port, kPort);

  EXPECT_EQ(Send(*a, client, "request"), SendResult::kSent);
  EXPECT_EQ(Send(*b, child, "reply"), SendResult::kSent);
  Run();
  EXPECT_EQ(Received(from_a, client), "reply");
  EXPECT_EQ(Received(from_b, child), "request");
  EXPECT_NE(from_b.back().hw_time_ns, 0);

  from_a.clear();
  from_b.clear();
  ASSERT_TRUE(a->ring->tcp().Close(client).ok());
  Run();
  EXPECT_EQ(Kinds(from_b), std::vector<Kind>{Kind::kPeerClosed});
  ASSERT_TRUE(b->ring->tcp().Close(child).ok());
  Run();
  EXPECT_EQ(Kinds(from_a), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(from_a[0].status, 0);
  EXPECT_EQ(Kinds(from_b), (std::vector<Kind>{Kind::kPeerClosed, Kind::kTerminated}));
  EXPECT_EQ(from_b[1].status, 0);
  EXPECT_EQ(a->ring->tcp().Find(client), nullptr);
  EXPECT_TRUE(a->ring->tcp().Quiescent());
  EXPECT_TRUE(b->ring->tcp().Quiescent());
}

TEST_F(TcpOverMlx5Test, ManyFramesOfBytesArriveWholeAndInOrder) {
  Listen(*b);
  const Handle client = Connect(*a, kB);
  Run();
  const Handle child = from_b[0].socket;
  std::string sent;
  for (int i = 0; i < 200'000; ++i) sent.push_back(static_cast<char>(i * 7 + i / 256));
  size_t at = 0;
  while (at < sent.size()) {
    Tcp& tcp = a->ring->tcp();
    SendResult result;
    at += tcp.SendSome(tcp.Find(client),
                       std::span(reinterpret_cast<const uint8_t*>(sent.data()), sent.size())
                           .subspan(at),
                       {}, &result);
    Run(1'000'000);
  }
  Run();
  EXPECT_EQ(Received(from_b, child), sent);
}

}  // namespace
}  // namespace xtreme::engine::testing
