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
#include "benchmarks/lwip/port/stream.h"
#include "benchmarks/scratch_directory.h"
#include "benchmarks/subprocess.h"

namespace xtreme::benchmarks {
namespace {

namespace fs = std::filesystem;

// The script among the files Bazel lays beside the program, or where the working directory is the
// source's; "": neither.
std::string FetchScript() {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  const fs::path beside = "xtreme/benchmarks/lwip/fetch";
  for (const fs::path& runfiles : {fs::path(program.string() + ".runfiles"), fs::path("..")}) {
    if (fs::exists(runfiles / beside)) return (runfiles / beside).string();
  }
  constexpr char kInSource[] = "benchmarks/lwip/fetch";
  return fs::exists(kInSource) ? kInSource : "";
}

absl::StatusOr<std::string> LibraryPath(bool cached) {
  std::vector<std::string> command = {FetchScript()};
  if (command.front().empty()) {
    return absl::UnavailableError("benchmarks/lwip/fetch, which gets lwIP, is not beside the "
                                  "program: `bazel run` lays it there");
  }
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

// One end of TCP.
struct StreamEnd {
  absl::Status Open(const std::string& library, const Host& us, const Host& other) {
    const Instance lwip(library);
    if (!lwip.loaded()) return absl::UnavailableError(dlerror());
    const XtremeLwipHost a = ToLwip(us), b = ToLwip(other);
    listen = lwip.Find<XtremeLwipListen>("XtremeLwipListenStream");
    connect = lwip.Find<XtremeLwipConnect>("XtremeLwipConnectStream");
    write = lwip.Find<XtremeLwipWrite>("XtremeLwipWriteStream");
    close = lwip.Find<XtremeLwipClose>("XtremeLwipCloseStream");
    tick = lwip.Find<XtremeLwipTick>("XtremeLwipTickStream");
    count = lwip.Find<XtremeLwipCount>("XtremeLwipCountStreams");
    next = lwip.Find<XtremeLwipNext>("XtremeLwipNextFrame");
    receive = lwip.Find<XtremeLwipWire>("XtremeLwipReceiveFrame");
    const bool open = lwip.Find<XtremeLwipOpen>("XtremeLwipOpenHost")(&a, &b, 0, nullptr) == 0;
    return open ? absl::OkStatus() : absl::InternalError("lwIP did not come up");
  }
  // What `from` sent arrives here; whether there was any.
  bool TakeFrom(StreamEnd& from) {
    bool any = false;
    uint16_t length = 0;
    while (const uint8_t* const frame = from.next(&length)) {
      receive(frame, length);
      any = true;
    }
    return any;
  }

  XtremeLwipListen listen = nullptr;
  XtremeLwipConnect connect = nullptr;
  XtremeLwipWrite write = nullptr;
  XtremeLwipClose close = nullptr;
  XtremeLwipTick tick = nullptr;
  XtremeLwipCount count = nullptr;
  XtremeLwipNext next = nullptr;
  XtremeLwipWire receive = nullptr;
};

class StreamScenario : public Scenario {
 public:
  explicit StreamScenario(uint32_t operations) : operations_(operations) {}
  uint32_t operations() const override { return operations_; }

  absl::Status Open(const std::string& library, bool echo, bool connect) {
    absl::Status status = client_.Open(library, HostA(), HostB());
    status.Update(server_.Open(library, HostB(), HostA()));
    if (!status.ok()) return status;
    if (server_.listen(echo) != 0) return absl::InternalError("lwIP does not listen");
    if (connect && client_.connect() != 0) return absl::InternalError("lwIP does not connect");
    Exchange();
    Run();
    return Worked() ? absl::OkStatus() : absl::InternalError("lwIP did not do what it should");
  }

 protected:
  // Whether one Run() did what it is to do.
  virtual bool Worked() const = 0;
  void Exchange() {
    for (bool moved = true; moved;) {
      moved = server_.TakeFrom(client_);
      moved = client_.TakeFrom(server_) || moved;
    }
  }

  const uint32_t operations_;
  StreamEnd client_, server_;
  std::array<uint8_t, 1460> payload_{};
};

class StreamPingPong : public StreamScenario {
 public:
  using StreamScenario::StreamScenario;
  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) {
      client_.write(payload_.data(), kMessage);
      Exchange();
    }
  }

 private:
  static constexpr uint16_t kMessage = 64;
  bool Worked() const override { return client_.count().bytes == kMessage * operations_; }
};

class StreamBulk : public StreamScenario {
 public:
  StreamBulk(uint32_t operations, uint32_t burst) : StreamScenario(operations), burst_(burst) {}
  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) {
      client_.write(payload_.data(), static_cast<uint16_t>(payload_.size()));
      if ((i + 1) % burst_ == 0) Exchange();
    }
  }

 private:
  bool Worked() const override { return server_.count().bytes == payload_.size() * operations_; }
  const uint32_t burst_;
};

class StreamOpenClose : public StreamScenario {
 public:
  using StreamScenario::StreamScenario;
  // Nobody is in TIME-WAIT, where every segment would be looked for.
  void Prepare() override {
    constexpr int kTicksOfTimeWait = 250;
    for (int i = 0; i < kTicksOfTimeWait; ++i) client_.tick();
  }
  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) {
      client_.connect();
      Exchange();
      client_.close();
      Exchange();
    }
  }

 private:
  bool Worked() const override { return server_.count().ended == operations_; }
};

template <typename Made, typename... More>
absl::StatusOr<std::unique_ptr<Scenario>> OverLwip(bool echo, bool connect, More... more) {
  auto library = LibraryPath(/*cached=*/true);
  if (!library.ok()) return library.status();
  auto scenario = std::make_unique<Made>(more...);
  if (absl::Status opened = scenario->Open(*library, echo, connect); !opened.ok()) return opened;
  return scenario;
}

}  // namespace

absl::Status FetchLwip() { return LibraryPath(/*cached=*/false).status(); }

absl::StatusOr<std::unique_ptr<Scenario>> LwipEcho(uint32_t operations) {
  auto library = LibraryPath(/*cached=*/true);
  if (!library.ok()) return library.status();
  auto scenario = std::make_unique<EchoScenario>(operations);
  if (absl::Status opened = scenario->Open(*library); !opened.ok()) return opened;
  return scenario;
}

absl::StatusOr<std::unique_ptr<Scenario>> LwipTcpPingPong(uint32_t operations) {
  return OverLwip<StreamPingPong>(/*echo=*/true, /*connect=*/true, operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> LwipTcpBulk(uint32_t operations, uint32_t burst) {
  return OverLwip<StreamBulk>(/*echo=*/false, /*connect=*/true, operations, burst);
}

absl::StatusOr<std::unique_ptr<Scenario>> LwipTcpOpenClose(uint32_t operations) {
  return OverLwip<StreamOpenClose>(/*echo=*/false, /*connect=*/false, operations);
}

}  // namespace xtreme::benchmarks
