// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/face_rig.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/native/process.h"
#include "api/sockets/descriptor_calls.h"
#include "api/sockets/faces.h"
#include "api/sockets/ring_door.h"
#include "api/sockets/socket.h"
#include "benchmarks/frames.h"
#include "benchmarks/null_device.h"
#include "benchmarks/null_nic.h"
#include "benchmarks/tcp_rig.h"
#include "benchmarks/veth_pair.h"
#include "tests/net/namespace.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/verbs_endpoint.h"
#include "tools/connectx/wire/link.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/host_kernel.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"

namespace xtreme::benchmarks {
namespace {

using sockets::Faces;

constexpr const char* kInterface = "xt0";
// The clock and the port's counters are sampled seldom enough to stay out of what is measured.
constexpr base::Nanoseconds kSeldom = base::Seconds(3600);
constexpr std::chrono::seconds kPatience{60};

// The faces ask once whether there is a device, and by libibverbs: a software one answers.
absl::Status Enable() {
  auto link = connectx::MakeLink();
  if (!link.ok()) return link.status();
  const auto connectx = connectx::SoftwareConnectX::Create(
      {.mode = connectx::SoftwareConnectX::Mode::kStep,
       .ports = {{.device = {.name = "mlx5_0", .mac = connectx::kMacA},
                  .wire = (*link)[0].get()}}});
  if (!connectx.ok()) return connectx.status();
  return Faces::The().enabled() ? absl::OkStatus() : absl::InternalError("the faces are off");
}

absl::StatusOr<std::unique_ptr<net::Namespace>> MakeSpace() {
  auto space = net::Namespace::Create();
  if (!space.ok()) return space.status();
  absl::Status status = net::ConnectByVeth(**space, kInterface, **space, "peer");
  status.Update((*space)->SetMac(kInterface, HostA().mac.bytes()));
  status.Update((*space)->AddAddress(kInterface, "10.0.0.1/24"));
  status.Update((*space)->AddNeighbour(kInterface, "10.0.0.2", HostB().mac.bytes()));
  if (!status.ok()) return status;
  return space;
}

}  // namespace

absl::StatusOr<FaceRig*> FaceRig::The() {
  static FaceRig* const rig = new FaceRig();
  static const absl::Status opened = rig->Open();
  if (!opened.ok()) return opened;
  return rig;
}

FaceRig::FaceRig() = default;

absl::Status FaceRig::Open() {
  if (absl::Status enabled = Enable(); !enabled.ok()) return enabled;
  auto space = MakeSpace();
  if (!space.ok()) return space.status();
  space_ = *std::move(space);
  // For good: whatever the faces ask the kernel is to be about this namespace.
  [[maybe_unused]] auto* const inside = new net::Namespace::Inside(*space_);
  auto kernel = engine::HostKernel::Create();
  if (!kernel.ok()) return kernel.status();
  engine::Engine::Options options;
  options.kernel = *std::move(kernel);
  options.clock_period = kSeldom;
  options.counters_period = kSeldom;
  options.send_patience = {};
  options.open_nic = [this](const std::string&) -> absl::StatusOr<std::unique_ptr<nic::Nic>> {
    auto nic = std::make_unique<NullNic>(HostA().mac, /*device_memory=*/false);
    nic_ = nic.get();
    return nic;
  };
  auto engine = engine::Engine::Create(std::move(options));
  if (!engine.ok()) return engine.status();
  api::Process::The().UseEngine(*std::move(engine));
  std::string why;
  door_ = Faces::The().DoorOf({.interface = kInterface}, &why);
  return door_ != nullptr ? absl::OkStatus() : absl::InternalError(why);
}

NullDevice& FaceRig::device() { return nic_->device(); }

int FaceRig::ring_fd() const { return door_->fd(); }

absl::StatusOr<int> FaceRig::Offloaded(int type, uint16_t port) {
  const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  const auto ours = sockets::AddSocket(Faces::The(), fd, type, /*nonblocking=*/true);
  const wire::Endpoint local{HostA().endpoint.address, port};
  if (const int bound = ours->Bind(ToSockaddr(local)); bound != 0) {
    Close(fd);
    return absl::ErrnoToStatus(-bound, "bind");
  }
  return fd;
}

absl::StatusOr<int> FaceRig::OpenDatagrams() {
  const auto fd = Offloaded(SOCK_DGRAM, HostA().endpoint.port);
  if (!fd.ok()) return fd;
  const auto ours = Faces::The().descriptors().FindSocket(*fd);
  const sockaddr_in peer = ToSockaddr(HostB().endpoint);
  const int connected = ours->Connect(reinterpret_cast<const sockaddr*>(&peer), sizeof peer);
  if (connected != 0 || ours->path() != sockets::Path::kOffloaded) {
    const std::string reason = ours->reason();
    Close(*fd);
    return absl::InternalError(absl::StrCat("connect: ", connected, " ", reason));
  }
  const sockets::RingDoor::Entry entry(door_);
  packet::BufferPool& pool = *door_->ring().core().device.pool;
  const std::vector<uint8_t> frame = UdpFrame(HostB(), HostA());
  // Where the device writes, whatever was in a buffer before.
  for (uint32_t i = 0; i < pool.capacity(); ++i) {
    std::copy(frame.begin(), frame.end(), pool.at(i)->start);
  }
  return fd;
}

absl::StatusOr<int> FaceRig::Connect(TcpRig& server, uint16_t port) {
  const auto fd = Offloaded(SOCK_STREAM, 0);
  if (!fd.ok()) return fd;
  const auto ours = Faces::The().descriptors().FindSocket(*fd);
  const sockaddr_in peer = ToSockaddr({HostB().endpoint.address, port});
  ours->Connect(reinterpret_cast<const sockaddr*>(&peer), sizeof peer);
  // Port and rule are made by the control thread, which may have to wait for its turn.
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end && ours->path() == sockets::Path::kOffloaded) {
    std::this_thread::yield();
    device().CarryTo(&server.device());
    server.Poll(TcpRig::kBatch);
    server.device().CarryTo(&device());
    const sockets::RingDoor::Entry entry(door_);
    door_->Progress();
    if ((ours->mask() & EPOLLOUT) != 0) return fd;
  }
  const std::string reason = ours->reason();
  Close(*fd);
  return absl::InternalError(absl::StrCat("the connection did not open ", reason));
}

void FaceRig::Close(int fd) {
  sockets::Forget(Faces::The(), fd);
  close(fd);
}

}  // namespace xtreme::benchmarks
