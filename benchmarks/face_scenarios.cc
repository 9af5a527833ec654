// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/face_scenarios.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "api/preload/preload.h"
#include "api/sockets/data_calls.h"
#include "api/sockets/descriptor_calls.h"
#include "api/sockets/epoll_set.h"
#include "api/sockets/message_calls.h"
#include "api/sockets/poll.h"
#include "api/vma/api.h"
#include "benchmarks/face_rig.h"
#include "benchmarks/frame_sizes.h"
#include "benchmarks/frames.h"
#include "benchmarks/null_device.h"
#include "benchmarks/ring_rig.h"
#include "benchmarks/tcp_rig.h"

namespace xtreme::benchmarks {
namespace {

constexpr uint16_t kServerPort = 7'100;
// Connections are young, and acknowledge at once, for a while.
constexpr uint32_t kYoung = 20;

// The bodies of the preloaded send() and recv(), but for the kernel's answers to others.
ssize_t Send(int fd, const void* bytes, size_t size) {
  return preload::Result(sockets::SendOurs(fd, bytes, size, 0));
}
ssize_t Receive(int fd, void* bytes, size_t size) {
  return preload::Result(sockets::ReceiveOurs(fd, bytes, size, 0));
}

class FaceScenario : public Scenario {
 public:
  FaceScenario(FaceRig* rig, int fd, uint32_t operations)
      : operations_(operations), rig_(*rig), fd_(fd) {}
  ~FaceScenario() override { FaceRig::Close(fd_); }
  uint32_t operations() const override { return operations_; }

 protected:
  const uint32_t operations_;
  FaceRig& rig_;
  const int fd_;
  alignas(64) std::array<uint8_t, kMessageBytes> bytes_{};
};

class FaceSendScenario : public FaceScenario {
 public:
  using FaceScenario::FaceScenario;
  void Prepare() override { rig_.device().CompleteSends(); }
  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) Send(fd_, bytes_.data(), kPayloadBytes);
  }
};

class FacePollScenario : public FaceScenario {
 public:
  FacePollScenario(FaceRig* rig, int fd, uint32_t operations, uint32_t batch)
      : FaceScenario(rig, fd, operations), completions_(batch), ring_fd_(rig->ring_fd()) {
    // It is the completions' from here on.
    int ring = -1;
    vma_.get_socket_rings_fds(fd, &ring, 1);
  }
  uint32_t received() const { return received_; }
  void Prepare() override { rig_.device().CompleteReceives(operations_, kFrameBytes); }
  void Run() override {
    const auto most = static_cast<unsigned>(completions_.size());
    for (uint32_t done = 0; done < operations_; done += most) {
      const int count = vma_.socketxtreme_poll(ring_fd_, completions_.data(), most, 0);
      received_ += count > 0 ? static_cast<uint32_t>(count) : 0;
      for (int i = 0; i < count; ++i) {
        vma_.socketxtreme_free_vma_packets(&completions_[static_cast<size_t>(i)].packet, 1);
      }
    }
  }

 private:
  const vma_api_t& vma_ = *vma::Api();
  std::vector<vma_completion_t> completions_;
  const int ring_fd_;
  uint32_t received_ = 0;
};

// Sends one and receives one.
class FaceTurnScenario : public FaceScenario {
 public:
  using FaceScenario::FaceScenario;
  uint32_t received() const { return received_; }

 protected:
  // What was sent has left, and a datagram has come.
  void ExchangeDatagrams() {
    auto exchange = [this] {
      rig_.device().CompleteSends();
      rig_.device().CompleteReceives(1, kFrameBytes);
    };
    AsDevice(exchange);
  }

  uint32_t received_ = 0;
};

class FaceUdpScenario : public FaceTurnScenario {
 public:
  using FaceTurnScenario::FaceTurnScenario;
  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) {
      Send(fd_, bytes_.data(), kPayloadBytes);
      ExchangeDatagrams();
      received_ += Receive(fd_, bytes_.data(), bytes_.size()) > 0;
    }
  }
};

// With the time at which each came.
class FaceMessageScenario : public FaceTurnScenario {
 public:
  FaceMessageScenario(FaceRig* rig, int fd, uint32_t operations)
      : FaceTurnScenario(rig, fd, operations) {
    const int on = 1;
    const auto socket = sockets::Faces::The().descriptors().FindSocket(fd);
    socket->SetOption(SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  }
  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) {
      iovec part{.iov_base = bytes_.data(), .iov_len = kPayloadBytes};
      msghdr message{.msg_iov = &part, .msg_iovlen = 1};
      preload::Result(sockets::SendMessageOurs(fd_, &message, 0));
      ExchangeDatagrams();
      alignas(cmsghdr) std::array<uint8_t, 64> control;
      sockaddr_in source;
      part.iov_len = bytes_.size();
      message = {.msg_name = &source,
                 .msg_namelen = sizeof source,
                 .msg_iov = &part,
                 .msg_iovlen = 1,
                 .msg_control = control.data(),
                 .msg_controllen = control.size()};
      const bool came = preload::Result(sockets::ReceiveMessageOurs(fd_, &message, 0)) > 0;
      received_ += came && message.msg_controllen != 0;
    }
  }
};

// An epoll set that holds one socket.
class SetOfOne {
 public:
  explicit SetOfOne(int fd) {
    sockets::Faces& faces = sockets::Faces::The();
    sockets::AddSet(faces, set_);
    const epoll_event event{.events = EPOLLIN, .data = {}};
    Set()->Control(EPOLL_CTL_ADD, fd, &event, sockets::Target(faces, fd, /*polls=*/true));
  }
  ~SetOfOne() { FaceRig::Close(set_); }
  SetOfOne(const SetOfOne&) = delete;
  SetOfOne& operator=(const SetOfOne&) = delete;

  // The body of the preloaded epoll_wait(), at once.
  bool IsReady() const {
    epoll_event event;
    return preload::Result(Set()->Wait(&event, 1, base::Nanoseconds(0), nullptr)) == 1;
  }

 private:
  std::shared_ptr<sockets::EpollSet> Set() const {
    return sockets::Faces::The().descriptors().FindEpoll(set_);
  }

  const int set_ = epoll_create1(EPOLL_CLOEXEC);
};

// One socket by poll(), and by select().
class PollOfOne {
 public:
  explicit PollOfOne(int fd) : fd_(fd) {}
  bool IsReady() const {
    sockets::Faces& faces = sockets::Faces::The();
    pollfd one{.fd = fd_, .events = POLLIN};
    if (!sockets::AnyOurs(faces, {&one, 1})) return false;
    return preload::ResultOf([&] {
             return sockets::Poll(faces, {&one, 1}, base::Nanoseconds(0), nullptr);
           }) == 1;
  }

 private:
  const int fd_;
};

class SelectOfOne {
 public:
  explicit SelectOfOne(int fd) : fd_(fd) {}
  bool IsReady() const {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd_, &set);
    return preload::ResultOf([&] {
             return sockets::Select(sockets::Faces::The(), fd_ + 1, &set, nullptr, nullptr,
                                    base::Nanoseconds(0), nullptr);
           }) == 1;
  }

 private:
  const int fd_;
};

// Asks before it receives.
template <typename Question>
class FaceAskingScenario : public FaceTurnScenario {
 public:
  FaceAskingScenario(FaceRig* rig, int fd, uint32_t operations)
      : FaceTurnScenario(rig, fd, operations), question_(fd) {}
  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) {
      Send(fd_, bytes_.data(), kPayloadBytes);
      ExchangeDatagrams();
      received_ += question_.IsReady() && Receive(fd_, bytes_.data(), bytes_.size()) > 0;
    }
  }

 private:
  const Question question_;
};

class EngineUdpScenario : public Scenario {
 public:
  EngineUdpScenario(std::unique_ptr<RingRig> rig, uint32_t operations)
      : operations_(operations), rig_(std::move(rig)) {}
  uint32_t operations() const override { return operations_; }
  void Run() override {
    auto turn = [this] {
      rig_->device().CompleteSends();
      rig_->device().CompleteReceives(1, kFrameBytes);
    };
    for (uint32_t i = 0; i < operations_; ++i) {
      rig_->Send();
      AsDevice(turn);
      rig_->Receive(1);
    }
  }

 private:
  const uint32_t operations_;
  const std::unique_ptr<RingRig> rig_;
};

// The other end of a connection, its wire and its device: none of it is measured.
class FarEnd {
 public:
  static absl::StatusOr<FarEnd> Make() {
    FarEnd end;
    auto server = TcpRig::Make(HostB(), HostA(), RingRig::DefaultOptions(), nullptr);
    if (!server.ok()) return server.status();
    end.server_ = *std::move(server);
    if (absl::Status heard = end.server_->Listen(kServerPort, {}); !heard.ok()) return heard;
    return end;
  }
  TcpRig& server() { return *server_; }

  // What left `near` arrives, and is answered.
  void Answer(NullDevice& near) {
    near.CarryTo(&server_->device());
    server_->Poll(TcpRig::kBatch, [this](const engine::Completion& completion) {
      if (completion.kind == engine::Kind::kPacket) {
        server_->Send(completion.socket, kMessageBytes);
      }
    });
    server_->device().CarryTo(&near);
  }

 private:
  std::unique_ptr<TcpRig> server_;
};

class FaceTcpScenario : public FaceTurnScenario {
 public:
  FaceTcpScenario(FaceRig* rig, int fd, FarEnd far, uint32_t operations)
      : FaceTurnScenario(rig, fd, operations), far_(std::move(far)) {}
  void Run() override {
    auto turn = [this] { far_.Answer(rig_.device()); };
    for (uint32_t i = 0; i < operations_; ++i) {
      Send(fd_, bytes_.data(), bytes_.size());
      AsDevice(turn);
      received_ += Receive(fd_, bytes_.data(), bytes_.size()) > 0;
    }
  }

 private:
  FarEnd far_;
};

class FaceEpollTcpScenario : public FaceTurnScenario {
 public:
  FaceEpollTcpScenario(FaceRig* rig, int fd, FarEnd far, uint32_t operations)
      : FaceTurnScenario(rig, fd, operations), far_(std::move(far)), set_(fd) {}
  void Run() override {
    auto turn = [this] { far_.Answer(rig_.device()); };
    for (uint32_t i = 0; i < operations_; ++i) {
      Send(fd_, bytes_.data(), bytes_.size());
      AsDevice(turn);
      received_ += set_.IsReady() && Receive(fd_, bytes_.data(), bytes_.size()) > 0;
    }
  }

 private:
  FarEnd far_;
  const SetOfOne set_;
};

class EngineTcpScenario : public Scenario {
 public:
  EngineTcpScenario(std::unique_ptr<TcpRig> rig, engine::Handle connection, FarEnd far,
                    uint32_t operations)
      : operations_(operations),
        rig_(std::move(rig)),
        connection_(connection),
        far_(std::move(far)) {}
  uint32_t operations() const override { return operations_; }
  void Run() override {
    auto turn = [this] { far_.Answer(rig_->device()); };
    for (uint32_t i = 0; i < operations_; ++i) {
      rig_->Send(connection_, kMessageBytes);
      AsDevice(turn);
      rig_->Poll(TcpRig::kBatch);
    }
  }

 private:
  const uint32_t operations_;
  const std::unique_ptr<TcpRig> rig_;
  const engine::Handle connection_;
  FarEnd far_;
};

void Grow(Scenario& scenario) {
  for (uint32_t done = 0; done < kYoung; done += scenario.operations()) scenario.Run();
}

// Once it was seen that what it measures works.
absl::StatusOr<std::unique_ptr<Scenario>> Tried(std::unique_ptr<FaceTurnScenario> scenario) {
  Grow(*scenario);
  if (scenario->received() >= scenario->operations()) return scenario;
  return absl::InternalError("recv() gets nothing");
}

template <typename Turns>
absl::StatusOr<std::unique_ptr<Scenario>> OnDatagrams(uint32_t operations) {
  const auto rig = FaceRig::The();
  if (!rig.ok()) return rig.status();
  const auto fd = (*rig)->OpenDatagrams();
  if (!fd.ok()) return fd.status();
  return Tried(std::make_unique<Turns>(*rig, *fd, operations));
}

template <typename Turns>
absl::StatusOr<std::unique_ptr<Scenario>> OnConnection(uint32_t operations) {
  const auto rig = FaceRig::The();
  if (!rig.ok()) return rig.status();
  auto far = FarEnd::Make();
  if (!far.ok()) return far.status();
  const auto fd = (*rig)->Connect(far->server(), kServerPort);
  if (!fd.ok()) return fd.status();
  return Tried(std::make_unique<Turns>(*rig, *fd, *std::move(far), operations));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scenario>> FaceSend(uint32_t operations) {
  const auto rig = FaceRig::The();
  if (!rig.ok()) return rig.status();
  const auto fd = (*rig)->OpenDatagrams();
  if (!fd.ok()) return fd.status();
  return std::make_unique<FaceSendScenario>(*rig, *fd, operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> FacePoll(uint32_t operations, uint32_t batch) {
  const auto rig = FaceRig::The();
  if (!rig.ok()) return rig.status();
  const auto fd = (*rig)->OpenDatagrams();
  if (!fd.ok()) return fd.status();
  auto scenario = std::make_unique<FacePollScenario>(*rig, *fd, operations, batch);
  // A poll may end at a packet that needs more attention, so the first ones may take fewer.
  for (int i = 0; i < 3; ++i) {
    scenario->Prepare();
    scenario->Run();
  }
  if (scenario->received() >= 2 * operations) return scenario;
  return absl::InternalError("socketxtreme_poll gets too little");
}

absl::StatusOr<std::unique_ptr<Scenario>> FaceUdp(uint32_t operations) {
  return OnDatagrams<FaceUdpScenario>(operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> FaceMessage(uint32_t operations) {
  return OnDatagrams<FaceMessageScenario>(operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> FaceEpoll(uint32_t operations) {
  return OnDatagrams<FaceAskingScenario<SetOfOne>>(operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> FacePollCall(uint32_t operations) {
  return OnDatagrams<FaceAskingScenario<PollOfOne>>(operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> FaceSelect(uint32_t operations) {
  return OnDatagrams<FaceAskingScenario<SelectOfOne>>(operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> EngineUdp(uint32_t operations) {
  auto rig = RingRig::Make(RingRig::DefaultOptions());
  if (!rig.ok()) return rig.status();
  return std::make_unique<EngineUdpScenario>(*std::move(rig), operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> FaceTcp(uint32_t operations) {
  return OnConnection<FaceTcpScenario>(operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> FaceEpollTcp(uint32_t operations) {
  return OnConnection<FaceEpollTcpScenario>(operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> EngineTcp(uint32_t operations) {
  auto rig = TcpRig::Make(HostA(), HostB(), RingRig::DefaultOptions(), nullptr);
  if (!rig.ok()) return rig.status();
  auto far = FarEnd::Make();
  if (!far.ok()) return far.status();
  const engine::Handle connection = (*rig)->Connect(kServerPort, {});
  if (connection == 0) return absl::InternalError("connect was refused");
  (*rig)->Finish();  // The port is leased.
  bool open = false;
  for (int tries = 0; tries < 1'000 && !open; ++tries) {
    (*rig)->Poll(TcpRig::kBatch, [&open](const engine::Completion& completion) {
      open |= completion.kind == engine::Kind::kEstablished;
    });
    far->Answer((*rig)->device());
  }
  if (!open) return absl::InternalError("the connection did not open");
  auto scenario = std::make_unique<EngineTcpScenario>(*std::move(rig), connection,
                                                      *std::move(far), operations);
  Grow(*scenario);
  return scenario;
}

}  // namespace xtreme::benchmarks
