// SPDX-License-Identifier: Apache-2.0
//
// feed_publisher: publishes a market-data feed from ordinary kernel sockets.
//
// A seeded market in ITCH 5.0 over MoldUDP64 on two lines, each with its own loss, and answers to
// requests for what was lost; or a capture file of UDP multicast, replayed. The last line it prints
// is "published=N ...".

#include <signal.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "fmt/format.h"
#include "samples/arguments.h"
#include "samples/publisher/line_sockets.h"
#include "samples/publisher/replay.h"
#include "samples/publisher/session.h"

namespace {

constexpr int64_t kHeartbeatNs = 50'000'000;

volatile sig_atomic_t stopped = 0;

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

void Pause() {
  const timespec wait = {.tv_sec = 0, .tv_nsec = 50'000};
  nanosleep(&wait, nullptr);
}

// Publishes, then goes on answering until nobody has asked for `linger_ns`.
void Run(publisher::Session* session, int64_t linger_ns) {
  int64_t heartbeat_ns = 0;
  int64_t quiet_since_ns = NowNs();
  while (!stopped) {
    const int64_t now_ns = NowNs();
    const uint64_t before = session->counters().published;
    session->Publish(now_ns);
    const bool published = session->counters().published != before;
    if (session->AnswerRequests() > 0 || published) quiet_since_ns = now_ns;
    if (published) heartbeat_ns = now_ns;
    if (now_ns - heartbeat_ns >= kHeartbeatNs) {
      session->Heartbeat();
      heartbeat_ns = now_ns;
    }
    if (session->finished() && now_ns - quiet_since_ns >= linger_ns) return;
    Pause();
  }
}

int Fail(const std::string& what) {
  fmt::print(stderr, "feed_publisher: {}\n", what);
  return 1;
}

// What a capture would publish: its length, and a line for each group.
int ListCapture(const std::string& pcap) {
  publisher::CaptureContents contents;
  const std::string wrong = publisher::List(pcap, &contents);
  if (!wrong.empty()) return Fail(wrong);
  fmt::print("seconds={}\n", contents.seconds);
  for (const auto& [group, datagrams] : contents.datagrams) {
    fmt::print("{} datagrams={}\n", group, datagrams);
  }
  return 0;
}

int ReplayCapture(const std::string& pcap, double speed, publisher::LineSockets* sockets) {
  publisher::ReplayCounters counters;
  const std::string wrong = publisher::Replay(pcap, speed, sockets, &counters);
  if (!wrong.empty()) return Fail(wrong);
  fmt::print("published={} passed_over={} failed_sends={}\n", counters.published,
             counters.passed_over, sockets->counters().failed_sends);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  publisher::Session::Options options;
  std::string address, line_a = "233.54.12.111:26477", line_b = "233.54.12.112:26477", pcap;
  uint16_t request_port = 26400;
  double linger_s = 2, speed = 1, loss_percent = 0;
  CLI::App app("Publishes a market-data feed (ITCH 5.0 over MoldUDP64) on two multicast lines.");
  app.add_option("--address", address, "Address of the interface to send from");
  app.add_option("--line-a", line_a, "Group and port of line A")->capture_default_str();
  app.add_option("--line-b", line_b, "Group and port of line B")->capture_default_str();
  app.add_option("--request-port", request_port, "UDP port that answers requests")
      ->capture_default_str();
  app.add_option("--messages", options.messages, "Messages to publish")->capture_default_str();
  app.add_option("--rate", options.messages_per_second, "Messages a second")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--pack", options.messages_per_datagram, "Messages a datagram")
      ->capture_default_str()
      ->check(CLI::Range(1, 30));
  app.add_option("--loss", loss_percent, "Datagrams that each line loses on purpose, per cent")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--seed", options.feed.seed, "Seed of the market and of the losses")
      ->capture_default_str();
  app.add_option("--linger", linger_s, "Seconds to go on answering after the last request")
      ->capture_default_str();
  app.add_option("--pcap", pcap, "Replay the UDP multicast of this capture instead");
  app.add_option("--speed", speed, "Replay this many times as fast")->check(CLI::PositiveNumber);
  bool list = false;
  app.add_flag("--list", list, "Only say what the capture holds");
  if (const auto ended = samples::ParseArguments(app, argc, argv)) return *ended;
  if (list) return ListCapture(pcap);

  for (int signal_number : {SIGINT, SIGTERM}) {
    signal(signal_number, [](int) { stopped = 1; });
  }
  const auto a = publisher::ParseEndpoint(line_a), b = publisher::ParseEndpoint(line_b);
  if (!a || !b) {
    const std::string& wrong = a ? line_b : line_a;
    return samples::RefuseArguments("feed_publisher", "a line is GROUP:PORT, not '" + wrong + "'");
  }
  options.feed.lines = {*a, *b};
  options.feed.loss = loss_percent / 100;
  publisher::LineSockets sockets;
  if (std::string wrong = sockets.Open(address, pcap.empty() ? request_port : 0); !wrong.empty()) {
    return Fail(wrong);
  }
  if (!pcap.empty()) return ReplayCapture(pcap, speed, &sockets);
  publisher::Session session(options, &sockets);
  Run(&session, static_cast<int64_t>(linger_s * 1e9));
  const auto& counters = session.counters();
  fmt::print("published={} datagrams={} lost_a={} lost_b={} requests={} refused_requests={} "
             "resent={} retried_sends={} failed_sends={}\n",
             counters.published, counters.datagrams, counters.lost[0], counters.lost[1],
             counters.requests, counters.refused_requests, counters.resent,
             sockets.counters().retried_sends, sockets.counters().failed_sends);
  return sockets.counters().failed_sends == 0 ? 0 : 1;
}
