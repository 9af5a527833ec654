// SPDX-License-Identifier: Apache-2.0
//
// Rings whose counters, sockets and groups are named and numbered by any bytes, in names that the
// views treat each in its way: all views end, and no series of Prometheus' is written twice.

#include <array>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "tools/stats/views.h"

namespace xtreme::stats {
namespace {

constexpr std::array<std::string_view, 8> kScopes = {"ring", "pool", "gap_ns", "gap ns",
                                                     "_ns",  "",     "udp",    "tcp"};
constexpr std::array<std::string_view, 16> kNames = {
    "below_8", "below_9", "below_", "below_x", "more",   "sum", "max",  "free",
    "polls",   "p.olls",  "count",  "bucket",  "drop_x", "",    "sent", "age_seconds"};

// Numbers, 0 when there are no more.
class Input {
 public:
  Input(const uint8_t* bytes, size_t length) : next_(bytes), end_(bytes + length) {}
  uint8_t Byte() { return next_ == end_ ? 0 : *next_++; }
  uint64_t Number() {
    const uint64_t byte = Byte();
    return byte < 128 ? byte : UINT64_MAX - byte;
  }
  Counter Named() {
    const std::string scope(kScopes[Byte() % kScopes.size()]);
    return {scope, std::string(kNames[Byte() % kNames.size()]), "as \\ it is", 0};
  }

 private:
  const uint8_t* next_;
  const uint8_t* end_;
};

Segment RingOf(Input* input) {
  Segment ring{.pid = input->Byte() % 2u, .ring = input->Byte() % 2u, .interface = "eth\"2\\"};
  ring.published_ns = static_cast<int64_t>(input->Number() << (input->Byte() % 64));
  for (int left = input->Byte() % 16; left > 0; --left) {
    ring.counters.push_back(input->Named());
    ring.counters.back().value = input->Number();
  }
  for (int left = input->Byte() % 4; left > 0; --left) ring.socket_names.push_back(input->Named());
  for (int left = input->Byte() % 4; left > 0; --left) {
    SocketCounters socket{.handle = input->Byte() % 2u, .protocol = input->Byte()};
    for (size_t i = 0; i < ring.socket_names.size(); ++i) socket.values.push_back(input->Number());
    ring.sockets.push_back(socket);
  }
  for (int left = input->Byte() % 4; left > 0; --left) ring.groups.push_back({.socket = 1});
  return ring;
}

void CheckSeries(std::string_view text) {
  std::set<std::string_view> written;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    if (line.starts_with('#')) continue;
    if (!written.insert(line.substr(0, line.rfind(' '))).second) abort();
  }
}

void Check(Input input) {
  const std::vector<Segment> rings = {RingOf(&input), RingOf(&input)};
  constexpr int64_t kNow = 1'000'000'000;
  for (const auto& [name, view] : ViewNames()) {
    if (ToText(rings, view, kNow).find('\0') != std::string::npos) abort();
  }
  if (nlohmann::json::parse(ToJson(rings, kNow), nullptr, false).size() != rings.size()) abort();
  CheckSeries(ToPrometheus(rings, kNow));
}

}  // namespace
}  // namespace xtreme::stats

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  xtreme::stats::Check({bytes, length});
  return 0;
}
