// SPDX-License-Identifier: Apache-2.0
//
// Starts a program with libconnectx.so preloaded: `launch [--SETTING=VALUE]... -- PROGRAM`.
// Options become the environment that the library reads; the library is found beside this program.

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "tools/connectx/preload/settings.h"

namespace xtreme::connectx {
namespace {

constexpr int kUsageError = 2;

int Usage(FILE* to) {
  std::fprintf(to,
               "usage: tools/connectx/run [--SETTING=VALUE]... -- PROGRAM [ARGUMENT]...\n\n"
               "Runs an mlx5 program on a software ConnectX. A setting is an option\n"
               "(--loss=0.01) or a variable of the environment:\n%s",
               DescribeSettings().c_str());
  return to == stdout ? 0 : kUsageError;
}

// One line: the table of settings would push it off the screen.
int Wrong(const std::string& why) {
  std::fprintf(stderr, "run: %s (--help has the settings)\n", why.c_str());
  return kUsageError;
}

// "--min-inline=none" as XTREME_CONNECTX_MIN_INLINE=none. False: not an option.
bool SetFromOption(std::string_view option) {
  const size_t equals = option.find('=');
  if (!option.starts_with("--") || equals == std::string_view::npos) return false;
  std::string name = kSettingPrefix;
  for (char c : option.substr(2, equals - 2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return ::setenv(name.c_str(), std::string(option.substr(equals + 1)).c_str(), 1) == 0;
}

int Launch(char** program) {
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::string preload = (here / "libconnectx.so").string();
  // Libraries that were to be preloaded already come first: they sit above the verbs.
  if (const char* others = std::getenv("LD_PRELOAD")) preload = std::string(others) + ":" + preload;
  ::setenv("LD_PRELOAD", preload.c_str(), 1);
  ::execvp(program[0], program);
  std::fprintf(stderr, "run %s: %s\n", program[0], std::strerror(errno));
  return EXIT_FAILURE;
}

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help") return Usage(stdout);
    if (argument == "--" && i + 1 < argc) {
      const auto settings = ReadSettings(environ);
      if (settings.ok()) return Launch(argv + i + 1);
      return Wrong(std::string(settings.status().message()));
    }
    if (argument == "--") return Wrong("no program behind --");
    if (!SetFromOption(argument)) {
      return Wrong(std::string(argument) + ": an option is --SETTING=VALUE, and -- stands before "
                                           "the program");
    }
  }
  return argc > 1 ? Wrong("no program: it stands behind --") : Usage(stderr);
}

}  // namespace
}  // namespace xtreme::connectx

int main(int argc, char** argv) { return xtreme::connectx::Main(argc, argv); }
