// SPDX-License-Identifier: Apache-2.0
//
// What a connectx_test of a binary runs: a program in a network of its own, with the interfaces
// that are asked for, and another program on the Linux host at their wires' other ends.
//
//   run_binary [--device=eth2=10.0.0.1/24[+10.0.0.9/24]]... [--mtu=9000] [--preload=LIBRARY]...
//              [--host=PROGRAM [--host-arg=ARGUMENT]...] -- PROGRAM [ARGUMENT]...
//
// Groups are reached by the first interface.
//
// Ends as PROGRAM does; with 1 if the host's program failed before that. Both are gone then.

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/net/namespace.h"
#include "tools/connectx/testing/own_network.h"
#include "tools/connectx/testing/port_text.h"

namespace xtreme::connectx {
namespace {

constexpr int kUsageError = 2;
constexpr char kGroups[] = "224.0.0.0/4";

struct Arguments {
  std::vector<std::string> devices;
  uint32_t mtu = 0;  // Of the interfaces and the host's; 0: as they are made.
  std::string preload;
  std::vector<char*> host;  // Of execvp; empty: no program.
  char** program = nullptr;
};

bool ParseMtu(std::string_view text, uint32_t* mtu) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *mtu);
  return error == std::errc() && rest == end && *mtu != 0;
}

std::optional<Arguments> ParseArguments(char** argv) {
  Arguments arguments;
  for (char** at = argv + 1; *at != nullptr; ++at) {
    const std::string_view option = *at;
    if (option == "--" && at[1] != nullptr) {
      arguments.program = at + 1;
      if (!arguments.host.empty()) arguments.host.push_back(nullptr);
      return arguments;
    }
    char* const equals = std::strchr(*at, '=');
    if (equals == nullptr) return std::nullopt;
    const std::string_view name = option.substr(0, static_cast<size_t>(equals - *at));
    if (name == "--device") {
      arguments.devices.emplace_back(equals + 1);
    } else if (name == "--mtu" && ParseMtu(equals + 1, &arguments.mtu)) {
      continue;
    } else if (name == "--preload") {
      // The program may be started from elsewhere.
      arguments.preload += std::filesystem::absolute(equals + 1).string() + ":";
    } else if (name == "--host" || (name == "--host-arg" && !arguments.host.empty())) {
      arguments.host.push_back(equals + 1);
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

// The program's network, and the host's.
struct Networks {
  std::unique_ptr<net::Namespace> own;
  std::unique_ptr<net::Namespace> host;  // Null: no interface was asked for.
};

absl::Status AddEnd(net::Namespace& network, const std::string& interface,
                    const std::string& address, uint32_t mtu, bool first) {
  if (mtu != 0) {
    if (absl::Status set = network.SetMtu(interface, mtu); !set.ok()) return set;
  }
  if (address.empty()) return absl::OkStatus();
  if (absl::Status added = network.AddAddress(interface, address); !added.ok()) return added;
  return first ? network.AddRoute(kGroups, interface) : absl::OkStatus();
}

absl::StatusOr<Networks> MakeNetworks(const std::vector<std::string>& devices, uint32_t mtu) {
  Networks made;
  auto own = MakeOwnNetwork();
  if (!own.ok()) return own.status();
  made.own = *std::move(own);
  if (devices.empty()) return made;
  auto host = net::Namespace::Create();
  if (!host.ok()) return host.status();
  made.host = *std::move(host);
  for (size_t i = 0; i < devices.size(); ++i) {
    const PortText port = ParsePort(devices[i]);
    const std::string end = "host" + std::to_string(i);
    absl::Status status = net::ConnectByVeth(*made.own, port.interface, *made.host, end);
    if (status.ok()) status = AddEnd(*made.own, port.interface, port.address, mtu, i == 0);
    if (status.ok()) status = AddEnd(*made.host, end, port.host, mtu, i == 0);
    if (!status.ok()) return status;
  }
  return made;
}

// Starts a program in `network`; -1: cannot fork.
pid_t Start(const net::Namespace& network, char** program, const std::string& preload) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  // Who kills this process, as Bazel does after the test's time, means them all.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) std::_Exit(EXIT_FAILURE);
  const net::Namespace::Inside inside(network);
  if (!preload.empty()) {
    const char* const others = std::getenv("LD_PRELOAD");
    ::setenv("LD_PRELOAD", (preload + (others == nullptr ? "" : others)).c_str(), 1);
  }
  ::execvp(program[0], program);
  std::fprintf(stderr, "connectx_test: run %s: %s\n", program[0], std::strerror(errno));
  std::_Exit(EXIT_FAILURE);
}

// Waits for the program, or for the host's to fail; the status of who ended it.
int WaitForEnd(pid_t program, pid_t host) {
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended == program) return status;
    if (ended < 0 && errno != EINTR) return EXIT_FAILURE << 8;
    if (ended != host || status == 0) continue;
    std::fprintf(stderr, "connectx_test: the host's program ended with %s %d\n",
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    ::kill(program, SIGKILL);
    return EXIT_FAILURE << 8;
  }
}

// As the program ended, by its status or its signal.
int EndAs(int status) {
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  ::signal(WTERMSIG(status), SIG_DFL);
  ::raise(WTERMSIG(status));
  return EXIT_FAILURE;
}

int Main(char** argv) {
  auto arguments = ParseArguments(argv);
  if (!arguments) {
    std::fprintf(stderr, "usage: run_binary [--device=IF=ADDRESS[+HOST]]... [--mtu=MTU] "
                         "[--preload=LIBRARY]... [--host=PROGRAM [--host-arg=ARGUMENT]...] "
                         "-- PROGRAM [ARGUMENT]...\n");
    return kUsageError;
  }
  const auto networks = MakeNetworks(arguments->devices, arguments->mtu);
  if (!networks.ok()) {
    std::fprintf(stderr, "connectx_test: %s\n", networks.status().ToString().c_str());
    return EXIT_FAILURE;
  }
  pid_t host = 0;
  if (!arguments->host.empty() && networks->host != nullptr) {
    host = Start(*networks->host, arguments->host.data(), "");
  }
  const pid_t program = Start(*networks->own, arguments->program, arguments->preload);
  const int status = WaitForEnd(program, host);
  if (host > 0) {
    ::kill(host, SIGKILL);
    ::waitpid(host, nullptr, 0);
  }
  return EndAs(status);
}

}  // namespace
}  // namespace xtreme::connectx

int main(int, char** argv) { return xtreme::connectx::Main(argv); }
