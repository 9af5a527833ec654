// SPDX-License-Identifier: Apache-2.0
//
// The list of what only a card can show, in its order. Each item is tried on its own rings and says
// what it saw; the same list runs on the software ConnectX, where the figures mean nothing.
//
// Threads: one at a time; an item may start its own.

#ifndef XTREME_BENCHMARKS_HARDWARE_ITEMS_H_
#define XTREME_BENCHMARKS_HARDWARE_ITEMS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace xtreme::hardware {

// How the cable is pulled: by a person who is asked to, by setting the link down, or not at all.
enum class Pull { kPrompt, kLink, kSkip };

struct Bench {
  std::string interface;
  std::string peer;       // The address at which `hardware --serve` answers.
  std::string program;    // This one, to be started again as another process.
  uint32_t asks = 10'000; // Round trips of one measurement.
  uint32_t rings = 32;
  Pull pull = Pull::kPrompt;
};

struct Outcome {
  enum class Verdict { kOk, kFailed, kNotTried };
  Verdict verdict = Verdict::kOk;
  std::string finding;
  nlohmann::ordered_json figures = nlohmann::ordered_json::object();
};

struct Item {
  std::string_view name;
  std::string_view what;
  Outcome (*run)(const Bench& bench);
};

std::span<const Item> Items();

// What the second process of `tag_conflict` does: joins the group, prints "ready", counts until
// nothing came for a second, prints the count. The exit code.
int CountGroup(const std::string& interface, const std::string& peer);

}  // namespace xtreme::hardware

#endif  // XTREME_BENCHMARKS_HARDWARE_ITEMS_H_
