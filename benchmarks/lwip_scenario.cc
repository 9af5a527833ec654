// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lwip_scenario.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmarks/frames.h"
#include "benchmarks/lwip/port/peer.h"
#include "benchmarks/scratch_directory.h"
#include "benchmarks/subprocess.h"

namespace xtreme::benchmarks {
namespace {

namespace fs = std::filesystem;

// The script among the files Bazel lays beside the program.
std::string FetchScript() {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  const fs::path beside = "xtreme/benchmarks/lwip/fetch";
  for (const fs::path& runfiles : {fs::path(program.string() + ".runfiles"), fs::path("..")}) {
    if (fs::exists(runfiles / beside)) return (runfiles / beside).string();
  }
  return "benchmarks/lwip/fetch";
}

absl::StatusOr<std::string> LibraryPath(bool cached) {
  std::vector<std::string> command = {FetchScript()};
  if (cached) command.push_back("--cached");
  auto output = RunProgram(command);
  if (!output.ok()) {
    return absl::UnavailableError("lwIP's source package could not be fetched and built "
                                  "(benchmarks/lwip/fetch says why)");
  }
  while (!output->empty() && output->back() == '\n') output->pop_back();
  return output;
}

// One instance: a copy of the library of its own, for a library is loaded once per file.
class Instance {
 public:
  explicit Instance(const std::string& library) {
    std::error_code error;
    const fs::path copy = fs::path(directory_.path()) / "liblwip.so";
    fs::copy_file(library, copy, error);
    if (!error) handle_ = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  // Stays loaded: both instances hold addresses of the other.
  bool loaded() const { return handle_ != nullptr; }

  template <typename Function>
  Function Find(const char* name) const {
    return reinterpret_cast<Function>(dlsym(handle_, name));
  }

 private:
  const ScratchDirectory directory_;
  void* handle_ = nullptr;
};

XtremeLwipHost ToLwip(const Host& host) {
  XtremeLwipHost lwip{};
  std::copy(host.mac.bytes().begin(), host.mac.bytes().end(), lwip.mac);
  lwip.address = host.endpoint.address.value();
  lwip.port = host.endpoint.port;
  return lwip;
}

class EchoScenario : public Scenario {
 public:
  explicit EchoScenario(uint32_t operations) : operations_(operations) {}

  absl::Status Open(const std::string& library) {
    const Instance client(library), server(library);
    if (!client.loaded() || !server.loaded()) return absl::UnavailableError(dlerror());
    const XtremeLwipHost a = ToLwip(HostA()), b = ToLwip(HostB());
    const auto receive = "XtremeLwipReceiveFrame";
    const auto open = "XtremeLwipOpenHost";
    if (client.Find<XtremeLwipOpen>(open)(&a, &b, 0, server.Find<XtremeLwipWire>(receive)) != 0 ||
        server.Find<XtremeLwipOpen>(open)(&b, &a, 1, client.Find<XtremeLwipWire>(receive)) != 0) {
      return absl::InternalError("lwIP did not come up");
    }
    send_ = client.Find<XtremeLwipSend>("XtremeLwipSendDatagram");
    received_ = client.Find<XtremeLwipReceived>("XtremeLwipReceivedDatagrams");
    Run();
    if (received_() != operations_) return absl::InternalError("lwIP lost datagrams");
    return absl::OkStatus();
  }

  uint32_t operations() const override { return operations_; }

  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) send_(payload_.data(), kPayloadBytes);
  }

 private:
  const uint32_t operations_;
  std::array<uint8_t, kPayloadBytes> payload_{};
  XtremeLwipSend send_ = nullptr;
  XtremeLwipReceived received_ = nullptr;
};

}  // namespace

absl::Status FetchLwip() { return LibraryPath(/*cached=*/false).status(); }

absl::StatusOr<std::unique_ptr<Scenario>> LwipEcho(uint32_t operations) {
  auto library = LibraryPath(/*cached=*/true);
  if (!library.ok()) return library.status();
  auto scenario = std::make_unique<EchoScenario>(operations);
  if (absl::Status opened = scenario->Open(*library); !opened.ok()) return opened;
  return scenario;
}

}  // namespace xtreme::benchmarks
