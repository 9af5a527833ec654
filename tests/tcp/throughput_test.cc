// SPDX-License-Identifier: Apache-2.0
//
// How much of a link TCP uses, by loss, buffer and what the peers agree on, as a text beside this
// test. It is exact, for everything follows from a seed: a change of it has to be looked at and
// then recorded (`throughput_test --record=FILE`).

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "stack/tcp/connection.h"
#include "tests/tcp/world.h"

namespace xtreme::tcp::testing {
namespace {

constexpr uint64_t kBytes = 2'000'000;

// kB/s of one direction over 100 Mb/s with 5 ms there and back.
uint64_t Throughput(uint32_t lose, uint32_t buffer, bool sack) {
  World::Options options;
  options.seed = 42;
  options.link = {.lose = lose,
                  .delay = base::Microseconds(2500),
                  .bits_per_second = 100'000'000,
                  .queue_frames = 100};
  World world(options);
  PcbOptions pcb;
  pcb.sack = sack;
  pcb.receive_window = buffer;
  pcb.send_queue = 1'000'000;
  Party sender(world, 0, {.stream = 1, .peer_stream = 2, .to_send = kBytes, .chunk = 1448});
  Party receiver(world, 1, {.stream = 2, .peer_stream = 1});
  world.host(0).on_event = [&](const Stack::Event& event) { sender.OnEvent(event); };
  world.host(1).on_event = [&](const Stack::Event& event) {
    if (event.kind == Stack::Event::Kind::kAccepted) receiver.Attach(event.connection);
    receiver.OnEvent(event);
  };
  world.host(1).stack().OpenListener({.local = world.host(1).At(80), .options = &pcb});
  sender.Attach(world.host(0)
                    .stack()
                    .Open({.local = world.host(0).At(40'000),
                           .remote = world.host(1).At(80),
                           .options = &pcb,
                           .path = world.host(0).path()},
                          world.now())
                    .connection);
  const base::Nanoseconds begin = world.now();
  const bool whole =
      world.RunUntil([&] { return receiver.received == kBytes; }, world.now() + base::Seconds(600));
  EXPECT_TRUE(whole);
  return kBytes * 1'000'000 / static_cast<uint64_t>((world.now() - begin).count());
}

std::string Matrix() {
  static constexpr uint32_t kLoss[] = {0, 10, 100, 500, 1000};
  std::ostringstream out;
  out << "kB/s over 100 Mb/s and 5 ms      0%   0.1%     1%     5%    10%  of segments lost\n";
  for (const bool sack : {true, false}) {
    for (const uint32_t buffer : {4'000u, 16'000u, 64'000u, 256'000u}) {
      char row[64];
      std::snprintf(row, sizeof row, "%-8s window %6u B   ", sack ? "SACK" : "no SACK", buffer);
      out << row;
      for (const uint32_t loss : kLoss) {
        std::snprintf(row, sizeof row, " %6llu",
                      static_cast<unsigned long long>(Throughput(loss, buffer, sack)));
        out << row;
      }
      out << "\n";
    }
  }
  return out.str();
}

std::string record_to;

TEST(Throughput, IsAsRecorded) {
  const std::string matrix = Matrix();
  if (!record_to.empty()) std::ofstream(record_to) << matrix;
  std::ifstream file("tests/tcp/throughput.txt");
  std::ostringstream recorded;
  recorded << file.rdbuf();
  EXPECT_EQ(matrix, recorded.str());
}

}  // namespace
}  // namespace xtreme::tcp::testing

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  static constexpr char kRecord[] = "--record=";
  if (argc > 1 && std::strncmp(argv[1], kRecord, sizeof kRecord - 1) == 0) {
    xtreme::tcp::testing::record_to = argv[1] + sizeof kRecord - 1;
  }
  return RUN_ALL_TESTS();
}
