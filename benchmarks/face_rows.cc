// SPDX-License-Identifier: Apache-2.0
//
// Rows of the faces: instructions of a program's calls over what the engine alone takes for the
// same, both counted in the same run of valgrind, with the faces' lock and without it.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "benchmarks/counting.h"
#include "benchmarks/measurement.h"
#include "benchmarks/scratch_directory.h"

namespace xtreme::benchmarks {
namespace {

constexpr uint32_t kOperations = 4'096;
constexpr uint32_t kQuickOperations = 256;

struct Face {
  std::string_view name;
  std::string_view what;
  std::string_view ours;    // Scenarios.
  std::string_view engine;
  double most;              // Instructions over the engine's; 0: no goal.
};

// In this order: with the first socketxtreme_poll the ring's sockets are for completions.
constexpr Face kFaces[] = {
    {"face_posix", "UDP", "face_posix_udp", "engine_udp", 150},
    {"face_posix", "recvmsg() with times and UDP", "face_posix_message", "engine_udp", 0},
    {"face_posix", "epoll_wait() and UDP", "face_posix_epoll", "engine_udp", 0},
    {"face_posix", "poll() and UDP", "face_posix_poll", "engine_udp", 0},
    {"face_posix", "select() and UDP", "face_posix_select", "engine_udp", 0},
    {"face_posix", "TCP", "face_posix_tcp", "engine_tcp", 150},
    {"face_posix", "epoll_wait() and TCP", "face_posix_epoll_tcp", "engine_tcp", 0},
    {"face_vma", "send", "face_vma_send", "udp_tx_post", 25},
    {"face_vma", "socketxtreme_poll", "face_vma_poll", "udp_rx", 25},
};

absl::StatusOr<Counts> Count(const Measurement& measurement, bool single) {
  std::vector<std::string> scenarios;
  for (const Face& face : kFaces) {
    scenarios.emplace_back(face.ours);
    scenarios.emplace_back(face.engine);
  }
  const ScratchDirectory scratch;
  return CountInstructions(
      std::filesystem::read_symlink("/proc/self/exe"), scenarios,
      measurement.quick ? kQuickOperations : kOperations, scratch.path(),
      {absl::StrCat("XTREME_THREAD_MODE_SINGLE=", single ? 1 : 0), "XTREME_LOG_LEVEL=error"});
}

absl::StatusOr<double> CountOf(const absl::StatusOr<Counts>& counts, std::string_view scenario) {
  if (!counts.ok()) return counts.status();
  const auto found = counts->find(scenario);
  if (found == counts->end()) return absl::InternalError("valgrind left no count");
  return found->second;
}

Row RowOf(const Face& face, const absl::StatusOr<Counts>& counts, bool single) {
  const std::string unit = absl::StrCat("instructions over the engine, ", std::string(face.what),
                                        single ? "" : ", locked");
  const Goal goal = single && face.most != 0 ? Goal{.most = face.most} : Goal{};
  const auto ours = CountOf(counts, face.ours);
  if (!ours.ok()) return Unmeasured(std::string(face.name), unit, goal, ours.status());
  const auto engine = CountOf(counts, face.engine);
  if (!engine.ok()) return Unmeasured(std::string(face.name), unit, goal, engine.status());
  return {.name = std::string(face.name),
          .unit = unit,
          .value = *ours - *engine,
          .goal = goal,
          .note = absl::StrFormat("%.1f, less %.1f of the engine", *ours, *engine)};
}

}  // namespace

std::vector<Row> FaceRows(const Measurement& measurement) {
  std::vector<Row> rows;
  for (const bool single : {true, false}) {
    const auto counts = Count(measurement, single);
    for (const Face& face : kFaces) rows.push_back(RowOf(face, counts, single));
  }
  return rows;
}

}  // namespace xtreme::benchmarks
