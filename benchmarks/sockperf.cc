// SPDX-License-Identifier: Apache-2.0
//
// Rows of sockperf, unchanged, in two namespaces that a veth pair joins: half a round trip of its
// ping-pong, the client once on the preloaded library and a software ConnectX and once on the
// kernel, the server on the kernel both times.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "benchmarks/measurement.h"
#include "benchmarks/subprocess.h"
#include "benchmarks/veth_pair.h"
#include "tests/net/namespace.h"

namespace xtreme::benchmarks {
namespace {

constexpr const char* kServer = "10.0.0.2";
constexpr const char* kPort = "7000";

using Command = std::vector<std::string>;

// A program that runs until the end of the scope.
class Running {
 public:
  Running(const net::Namespace& space, const Command& command) {
    const net::Namespace::Inside inside(space);
    std::vector<char*> arguments;
    for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&quiet, STDOUT_FILENO, STDERR_FILENO);
    if (posix_spawnp(&pid_, arguments[0], &quiet, nullptr, arguments.data(), environ) != 0) {
      pid_ = -1;
    }
    posix_spawn_file_actions_destroy(&quiet);
  }
  ~Running() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  pid_t pid_ = -1;
};

// What runs a program on the faces and a card, built beside this one.
absl::StatusOr<Command> OnFaces() {
  const auto bin = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  const auto library = bin / "api" / "libxtreme.so";
  const auto launch = bin / "tools" / "connectx" / "preload" / "launch";
  if (!std::filesystem::exists(library) || !std::filesystem::exists(launch)) {
    return absl::NotFoundError(
        "build //api:libxtreme.so and //tools/connectx/preload:all for this row");
  }
  // A software device needs a processor: a client that spun would take it away.
  return Command{"env", "XTREME_LOG_LEVEL=error", "XTREME_RX_POLL=0",
                 absl::StrCat("LD_PRELOAD=", library.string()), launch.string(),
                 "--interface=x0", "--"};
}

// Microseconds: the median of half the round trips.
absl::StatusOr<double> MedianOf(const std::string& output) {
  constexpr std::string_view kMark = "percentile 50.000 =";
  const size_t at = output.find(kMark);
  if (at == std::string::npos) return absl::InternalError("sockperf gave no median");
  const size_t begin = output.find_first_not_of(' ', at + kMark.size());
  double value = 0;
  const auto [end, error] =
      std::from_chars(output.data() + begin, output.data() + output.size(), value);
  if (error != std::errc()) return absl::InternalError("sockperf's median is no number");
  return value;
}

absl::StatusOr<double> PingPong(const VethPair& pair, Command command, bool tcp, bool quick) {
  for (const char* each : {"sockperf", "ping-pong", "-i", kServer, "-p", kPort, "-m", "64", "-t"}) {
    command.push_back(each);
  }
  command.push_back(quick ? "1" : "5");
  if (tcp) command.push_back("--tcp");
  const net::Namespace::Inside inside(*pair.a);
  auto output = RunProgram(command);
  return output.ok() ? MedianOf(*output) : output.status();
}

Row SockperfRow(const VethPair& pair, bool tcp, bool quick) {
  Row row{.name = tcp ? "sockperf tcp" : "sockperf udp",
          .unit = "us",
          .peer = "the same client on the kernel, over the same veth"};
  const auto on_faces = OnFaces();
  if (!on_faces.ok()) return Unmeasured(row.name, row.unit, {}, on_faces.status());
  Command server{"sockperf", "server", "-i", kServer, "-p", kPort};
  if (tcp) server.push_back("--tcp");
  const Running running(*pair.b, server);
  // It says nothing when it is ready; a client that is refused says so at once.
  usleep(500'000);
  const auto kernel = PingPong(pair, {}, tcp, quick);
  const auto faces = PingPong(pair, *on_faces, tcp, quick);
  if (!faces.ok()) return Unmeasured(row.name, row.unit, {}, faces.status());
  row.value = *faces;
  if (kernel.ok()) row.peer_value = *kernel;
  const std::string no_peer =
      kernel.ok() ? "" : absl::StrCat("no peer: ", kernel.status().message(), "; ");
  row.note = absl::StrCat(
      no_peer,
      "median of half a round trip; on two cores client, software device and server take turns, "
      "and each frame crosses the veth by a packet socket: it is the software device's time, and "
      "not a card's");
  return row;
}

}  // namespace

std::vector<Row> SockperfRows(const Measurement& measurement) {
  auto pair = VethPair::Create();
  std::vector<Row> rows;
  for (const bool tcp : {false, true}) {
    rows.push_back(pair.ok() ? SockperfRow(*pair, tcp, measurement.quick)
                            : Unmeasured(tcp ? "sockperf tcp" : "sockperf udp", "us", {},
                                         pair.status()));
  }
  return rows;
}

}  // namespace xtreme::benchmarks
