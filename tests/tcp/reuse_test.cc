// SPDX-License-Identifier: Apache-2.0
//
// Connections one after the other from a few ports to one listener, over a link that loses, repeats
// and delays: each finds what the one before left at either end (TIME-WAIT, LAST-ACK, FIN-WAIT-2, a
// half-open end whose reset was lost, or that never sent one), and gets past it. RFC 9293 sections
// 3.5.1, 3.6.1 and 3.10.7, RFC 6191, RFC 5961.

#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "stack/packet/buffer_pool.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/stack.h"
#include "tests/tcp/world.h"

namespace xtreme::tcp::testing {
namespace {

constexpr base::Nanoseconds kClosePatience = base::Seconds(5);
constexpr base::Nanoseconds kReplyPatience = base::Seconds(60);

struct Case {
  std::string name;
  Impairments link;
  bool timestamps = true;
  bool restarts = false;  // Each connect is of a process with another clock of timestamps.
  bool varies = false;    // Each offers other options.
  int ports = 3;
  int connects = 400;
  uint64_t seed = 1;
};

// How an end goes.
enum class End : uint8_t { kClose, kAwaitPeer, kAbort, kVanish };

struct Outcome {
  base::Nanoseconds took;
  int error = 0;
};

class Reuse {
 public:
  explicit Reuse(const Case& which)
      : case_(which), world_(OptionsOf(which)), random_(which.seed * 977) {
    client_options_.timestamps = server_options_.timestamps = which.timestamps;
    world_.host(0).on_event = [this](const Stack::Event& event) { OnClient(event); };
    world_.host(1).on_event = [this](const Stack::Event& event) { OnServer(event); };
    world_.host(1).stack().OpenListener(
        {.local = world_.host(1).At(80), .options = &server_options_});
    for (int port = 0; port < which.ports; ++port) Later([this, port] { Open(port); });
  }

  void Run() {
    world_.RunUntil([this] { return opened_ >= case_.connects && opening_.empty(); },
                    world_.now() + base::Seconds(400'000));
  }

  const std::vector<Outcome>& outcomes() const { return outcomes_; }
  size_t opening() const { return opening_.size(); }
  int unanswered() const { return unanswered_; }
  int answered() const { return answered_; }
  World& world() { return world_; }

 private:
  struct Attempt {
    int port;
    base::Nanoseconds since;
    bool ended = false;  // By its own end, before it was open.
  };
  struct Client {
    int port;
    End end;
  };

  static World::Options OptionsOf(const Case& which) {
    World::Options options{.seed = which.seed, .link = which.link};
    return options;
  }
  uint64_t Random(uint64_t below) { return random_() % below; }
  template <typename Act>
  void After(base::Nanoseconds wait, Act act) {
    world_.At(world_.now() + wait, [this, act] {
      act();
      world_.host(0).Drain();
      world_.host(1).Drain();
    });
  }
  template <typename Act>
  void Later(Act act) {
    // From at once to seconds.
    const auto most = int64_t{1} << Random(32);
    After(base::Nanoseconds(static_cast<int64_t>(Random(static_cast<uint64_t>(most)))), act);
  }
  Stack& client() { return world_.host(0).stack(); }
  Stack& server() { return world_.host(1).stack(); }

  void Open(int port) {
    if (opened_ >= case_.connects) return;
    PcbOptions& options = *client_sets_.emplace_back(std::make_unique<PcbOptions>(client_options_));
    if (case_.restarts) options.timestamp_clock.offset = static_cast<uint32_t>(random_());
    if (case_.varies) {
      options.timestamps = Random(2) == 0;
      options.sack = Random(2) == 0;
      options.receive_window = Random(2) == 0 ? 60'000 : 256 * 1024;
    }
    const Stack::Opened made =
        client().Open({.local = world_.host(0).At(static_cast<uint16_t>(40'000 + port)),
                       .remote = world_.host(1).At(80),
                       .options = &options,
                       .path = world_.host(0).path()},
                      world_.now());
    if (made.error == EADDRINUSE) {
      return After(base::Milliseconds(50), [this, port] { Open(port); });
    }
    ASSERT_NE(made.connection, nullptr) << made.error;
    ++opened_;
    made.connection->user = ++number_;
    opening_[number_] = {port, world_.now()};
    if (Random(10) != 0) return;
    // It thinks better of it.
    Later([this, number = number_, connection = made.connection] {
      const auto found = opening_.find(number);
      if (found == opening_.end()) return;
      found->second.ended = true;
      Random(2) == 0 ? client().Abort(*connection, world_.now())
                     : client().Fail(*connection, ENETDOWN);
    });
  }

  void Settle(uint64_t number, int error) {
    const auto found = opening_.find(number);
    if (found == opening_.end()) return;
    if (!found->second.ended) outcomes_.push_back({world_.now() - found->second.since, error});
    opening_.erase(found);
  }

  void OnClient(const Stack::Event& event) {
    using Kind = Stack::Event::Kind;
    Connection& connection = *event.connection;
    const uint64_t number = connection.user;
    switch (event.kind) {
      case Kind::kEstablished: {
        const int port = opening_[number].port;
        Settle(number, 0);
        clients_[number] = {.port = port, .end = static_cast<End>(Random(4))};
        const auto request = static_cast<End>(Random(4));
        return Ask(number, connection, request);
      }
      case Kind::kData: {
        packet::BufferPool::ReleaseChain(event.chain);
        if (waits_.erase(number) != 0) ++answered_;
        const End end = clients_[number].end;
        if (end == End::kAwaitPeer) {
          return Later([this, number, &connection] { Finish(number, connection); });
        }
        return Finish(number, connection);
      }
      case Kind::kPeerClosed:
        if (waits_.erase(number) != 0) ++answered_;
        return Finish(number, connection);
      case Kind::kTerminated: {
        waits_.erase(number);
        const auto opening = opening_.find(number);
        const int port =
            opening != opening_.end() ? opening->second.port : clients_[number].port;
        Settle(number, event.status);
        clients_.erase(number);
        client().Release(connection);
        return Later([this, port] { Open(port); });
      }
      default: return;
    }
  }

  // The server goes as it is asked to. One that vanishes may not be heard: its words are not sent
  // again.
  void Ask(uint64_t number, Connection& connection, End request) {
    const auto byte = static_cast<uint8_t>(request);
    client().SendCopy(connection, {&byte, 1}, {}, world_.now());
    waits_.insert(number);
    const bool silent = request == End::kVanish || request == End::kAbort;
    After(kReplyPatience, [this, number, silent, &connection] {
      if (waits_.erase(number) == 0) return;
      unanswered_ += !silent;
      client().Abort(connection, world_.now());
    });
  }

  void Finish(uint64_t number, Connection& connection) {
    const auto found = clients_.find(number);
    if (found == clients_.end()) return;
    switch (found->second.end) {
      case End::kAbort: return client().Abort(connection, world_.now());
      case End::kVanish: return client().Fail(connection, ENETDOWN);
      default: return client().Close(connection, kClosePatience, world_.now());
    }
  }

  void OnServer(const Stack::Event& event) {
    using Kind = Stack::Event::Kind;
    Connection& connection = *event.connection;
    switch (event.kind) {
      case Kind::kData: {
        const End end = static_cast<End>(event.chain->data[0]);
        packet::BufferPool::ReleaseChain(event.chain);
        server().Credit(connection, event.bytes, world_.now());
        const uint8_t reply = 1;
        server().SendCopy(connection, {&reply, 1}, {}, world_.now());
        if (end == End::kClose) server().Close(connection, kClosePatience, world_.now());
        if (end == End::kAbort) server().Abort(connection, world_.now());
        if (end == End::kVanish) server().Fail(connection, ENETDOWN);
        return;
      }
      case Kind::kPeerClosed:
        return server().Close(connection, kClosePatience, world_.now());
      case Kind::kTerminated: return server().Release(connection);
      default: return;
    }
  }

  const Case case_;
  World world_;
  std::mt19937_64 random_;
  PcbOptions client_options_;
  PcbOptions server_options_;
  std::vector<std::unique_ptr<PcbOptions>> client_sets_;
  std::map<uint64_t, Attempt> opening_;
  std::map<uint64_t, Client> clients_;
  std::set<uint64_t> waits_;
  std::vector<Outcome> outcomes_;
  uint64_t number_ = 0;
  int opened_ = 0;
  int answered_ = 0;
  int unanswered_ = 0;
};

// Each attempt ends by its own timer at the latest, and who is connected to a server that lives is
// heard.
void ExpectAllEnd(const Case& which, int may_fail) {
  SCOPED_TRACE(which.name + ", seed " + std::to_string(which.seed));
  Reuse reuse(which);
  reuse.Run();
  EXPECT_EQ(reuse.opening(), 0u);
  EXPECT_GT(reuse.answered(), which.connects / 3);
  EXPECT_EQ(reuse.unanswered(), 0);
  for (const Outcome& outcome : reuse.outcomes()) {
    EXPECT_LE(outcome.took, PcbOptions().connect_timeout);
    EXPECT_TRUE(outcome.error == 0 || outcome.error == may_fail) << outcome.error;
  }
}

class ReuseTest : public ::testing::TestWithParam<Case> {};

TEST_P(ReuseTest, EachConnectGetsPastWhatTheOneBeforeLeft) {
  Case which = GetParam();
  // Six SYNs, or what answers them, may be lost.
  const int may_fail = which.link.lose >= 1000 ? ETIMEDOUT : 0;
  for (which.seed = 1; which.seed <= 10 && !HasFailure(); ++which.seed) {
    ExpectAllEnd(which, may_fail);
  }
}

constexpr Impairments kLossless{};
constexpr Impairments kLossy{.lose = 100, .duplicate = 100, .reorder = 200};
constexpr Impairments kSlow{
    .lose = 100, .duplicate = 300, .reorder = 1000, .reorder_by = base::Milliseconds(800)};
constexpr Impairments kBad{.lose = 1000, .duplicate = 1000, .reorder = 2000};

INSTANTIATE_TEST_SUITE_P(
    Links, ReuseTest,
    ::testing::Values(Case{.name = "Lossless", .link = kLossless},
                    Case{.name = "LosslessPlain", .link = kLossless, .timestamps = false},
                    Case{.name = "Lossy", .link = kLossy},
                    Case{.name = "LossyPlain", .link = kLossy, .timestamps = false},
                    Case{.name = "Slow", .link = kSlow},
                    Case{.name = "SlowPlain", .link = kSlow, .timestamps = false},
                    Case{.name = "Bad", .link = kBad},
                    Case{.name = "BadPlain", .link = kBad, .timestamps = false},
                    Case{.name = "Varying", .link = kLossless, .varies = true},
                    Case{.name = "VaryingLossy", .link = kLossy, .varies = true}),
    [](const auto& tested) { return tested.param.name; });

// Another program's clock of timestamps, behind that of the connection before: TIME-WAIT takes its
// SYN for an old one (RFC 6191 section 2) as long as it lasts, but nothing else does.
TEST(ReuseByOthers, OnlyTimeWaitKeepsAConnectOut) {
  for (uint64_t seed = 1; seed <= 10 && !::testing::Test::HasFailure(); ++seed) {
    ExpectAllEnd({.name = "Restarts", .link = kLossless, .restarts = true, .seed = seed},
                 ETIMEDOUT);
  }
}

}  // namespace
}  // namespace xtreme::tcp::testing
