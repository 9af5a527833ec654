// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/guided.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

extern "C" {
int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length);
// libFuzzer's own main().
int LLVMFuzzerRunDriver(int* argc, char*** argv, int (*target)(const uint8_t*, size_t));
}

namespace xtreme::fuzz {
namespace {

constexpr uint64_t kFirstInputs = 256;

std::string FolderOr(const char* variable, const std::string& other) {
  const char* const folder = std::getenv(variable);
  return folder == nullptr ? other : folder;
}

// A folder with the inputs to begin with, which is the test's own.
std::string WriteFirst(const Inputs& inputs) {
  std::string folder = FolderOr("TEST_TMPDIR", "/tmp") + "/fuzz.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) std::abort();
  for (uint64_t i = 0; i < kFirstInputs; ++i) {
    const Bytes input = inputs.At(i);
    std::ofstream file(folder + "/" + std::to_string(i), std::ios::binary);
    file.write(reinterpret_cast<const char*>(input.data()),
               static_cast<std::streamsize>(input.size()));
  }
  return folder;
}

}  // namespace

void RunGuided(const Inputs& inputs, const GuidedRun& run) {
  static const std::string folder = WriteFirst(inputs);
  std::atexit([] { std::filesystem::remove_all(folder); });  // libFuzzer ends the process.
  const std::string limit =
      run.seconds == 0 ? "-runs=" + std::to_string(run.iterations)
                       : "-max_total_time=" + std::to_string(std::lround(std::ceil(run.seconds)));
  std::vector<std::string> arguments = {
      run.program,
      "-seed=" + std::to_string(std::max<uint64_t>(run.seed % (1u << 31), 1)),  // 0: any.
      "-max_len=" + std::to_string(run.max_bytes),
      "-len_control=0",
      limit,
      "-artifact_prefix=" + FolderOr("TEST_UNDECLARED_OUTPUTS_DIR", ".") + "/",
      folder};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int argc = static_cast<int>(arguments.size());
  char** all = argv.data();
  std::exit(LLVMFuzzerRunDriver(&argc, &all, &LLVMFuzzerTestOneInput));
}

}  // namespace xtreme::fuzz
