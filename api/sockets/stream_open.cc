// SPDX-License-Identifier: Apache-2.0
//
// Listening, accepting and connecting. A listener listens on the kernel's side too: what comes by
// loopback or by another interface is accepted there.
// It goes to a ring with its first accept or poll, so that a worker that was forked after listen()
// has it; of several processes that do so, the first. The others' are offered again
// (deferred_listeners.h).

#include <fcntl.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "api/sockets/blocking.h"
#include "api/sockets/deferred_listeners.h"
#include "api/sockets/faces.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/listener_claim.h"
#include "api/sockets/log.h"
#include "api/sockets/socket.h"
#include "api/sockets/stream.h"
#include "stack/wire/address_text.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/host/kernel_connections.h"

namespace xtreme::sockets {
namespace {

// What Linux does not give to children.
bool IsOfListeners(const StreamOption& option) {
  if (option.level == SOL_SOCKET) return option.name == SO_PRIORITY;
  return option.level == IPPROTO_TCP &&
         (option.name == TCP_DEFER_ACCEPT || option.name == TCP_FASTOPEN);
}

}  // namespace

bool Socket::listening() const {
  return stream_ != nullptr && stream_->state == Stream::State::kListening;
}

bool Socket::deferred() const {
  return stream_ != nullptr && stream_->state == Stream::State::kDeferred;
}

bool Socket::HasConnected() const {
  return stream_ != nullptr && path() == Path::kOffloaded && !listening();
}

RingDoor* Socket::DoorForStream(std::string* why) {
  *why = WhyNot();
  if (!why->empty()) return nullptr;
  std::string interface = DeviceOf(fd());
  const std::string own = local_.address.IsAny() ? interface : InterfaceOf(local_.address);
  *why = "its address is not of the device that it is bound to";
  if (!interface.empty() && own != interface) return nullptr;
  interface = own;
  if (peer_.port != 0) {
    const auto departure = DepartureTo(fd(), peer_);
    *why = "its peer is in this host, or has no route";
    if (!departure || (!interface.empty() && interface != departure->interface)) return nullptr;
    interface = departure->interface;
  }
  const RingKey key = KeyOn(interface);
  return interface.empty() ? faces_->AnyDoor(key, why) : faces_->DoorOf(key, why);
}

// Of what is not bound yet, the device says it that it is to be on.
RingDoor* Socket::RingToBe() {
  const std::lock_guard lock(faces_->setup());
  Decide();
  if (path() != Path::kUndecided) return door();
  const bool known = (stream_ != nullptr && bound_) || !DeviceOf(fd()).empty();
  if (!known) return door();
  std::string why;
  return DoorForStream(&why);
}

// --- Listening ---

int Socket::Listen(int backlog) {
  const std::lock_guard lock(faces_->setup());
  if (stream_ != nullptr && path() == Path::kOffloaded && !listening()) return -EINVAL;
  if (Kernel().listen(fd(), backlog) != 0) return -errno;
  if (stream_ == nullptr) return 0;
  // Linux: of less than none there are as many as there may be.
  constexpr uint32_t kMost = 4'096;
  const uint32_t most = std::min(static_cast<uint32_t>(backlog), kMost);
  if (RingDoor* const ring = door()) {
    const RingDoor::Entry entry(ring);
    ring->ring().tcp().SetBacklog(handle_, most + 1);
    return 0;
  }
  if (path() != Path::kUndecided) return 0;
  bound_ = true;
  LearnLocal();
  stream_->backlog = most;
  if (!faces_->enabled()) {
    LeaveToKernelLocked("no RDMA device");
    return 0;
  }
  stream_->state = Stream::State::kOffered;
  if (taker_ == Taker::kCompletions) ServeListener();
  return 0;
}

// Takes the name of it, or what an earlier listener of this process left: then whose ring kept it.
// Without either another process has it.
RingDoor* Socket::Claim() {
  for (RingDoor* each = faces_->doors(); each != nullptr; each = each->older()) {
    const RingDoor::Entry entry(each);
    stream_->claim = each->TakeClaim(local_);
    if (stream_->claim >= 0) return each;
  }
  stream_->claim = ClaimListener(local_);
  return nullptr;
}

// Whether the kernel has a connection there, or has begun one, that comes by `interface`: of this
// listener, or of another process'.
bool Socket::KernelConnects(const std::string& interface) {
  pollfd waits{.fd = fd(), .events = POLLIN};
  if (Kernel().poll(&waits, 1, 0) == 1) return true;
  std::vector<wire::Ipv4Address> own;
  std::vector<wire::Ipv4Address> there;
  for (const HostAddress& each : HostAddresses()) {
    own.push_back(each.address);
    const bool of_it = local_.address.IsAny() || local_.address == each.address;
    if (of_it && each.interface == interface) there.push_back(each.address);
  }
  const Passage passage;
  return std::any_of(there.begin(), there.end(), [&](wire::Ipv4Address address) {
    return host::CountConnections({address, local_.port}, own).value_or(0) != 0;
  });
}

// A connection that the kernel began is a stranger to the ring: with one, it goes on as it began.
// Looked at when the ring is up, which takes a while, and once more when the rule stands, then also
// for one that was half open and whose last step comes to the ring: until then the ring answers
// nobody, for it would reset that one by what came of it meanwhile.
void Socket::ServeListener() {
  stream_->state = Stream::State::kIdle;
  RingDoor* const keeper = Claim();
  if (stream_->claim < 0) return DeferLocked("another process serves its address", nullptr);
  std::string why;
  RingDoor* const ring = DoorForStream(&why);
  if (ring == nullptr) return LeaveToKernelLocked(why);
  constexpr const char* kConnects = "the kernel has connections at its address";
  if (KernelConnects(ring->interface())) return DeferLocked(kConnects, keeper);
  OpenListener(ring);
  if (path() != Path::kOffloaded) return;
  if (KernelConnects(ring->interface()) || stream_->kernel_accepts != 0) {
    return DeferLocked(kConnects, keeper);
  }
  {
    const RingDoor::Entry entry(ring);
    ring->ring().tcp().Welcome(handle_);
  }
  Log(LogLevel::kDebug, "fd {}: offloaded on {}, listens as {}", fd(), ring->interface(),
      wire::ToString(local_));
  // Who watches it learns of the ring.
  Change(0, 0, EPOLLHUP);
}

// What the kernel has it keeps, and gets what comes. `keeper`: the ring that kept the claim.
void Socket::DeferLocked(const char* reason, RingDoor* keeper) {
  // Who takes completions looks for them at rings alone, and never waits.
  if (taker_ == Taker::kCompletions) return LeaveToKernelLocked(reason);
  (void)KeyOn("");  // The ring is that of this thread, whoever offers it again.
  const int claim = std::exchange(stream_->claim, -1);
  if (path() == Path::kOffloaded) {
    path_.store(Path::kUndecided, std::memory_order_release);
    TakeDown();
  }
  if (keeper != nullptr) {
    const RingDoor::Entry entry(keeper);
    keeper->KeepClaim(local_, claim);
  } else {
    stream_->claim = claim;
    EndClaim();
  }
  stream_->state = Stream::State::kDeferred;
  faces_->deferred().Add(shared_from_this());
  if (reason_.empty()) faces_->CountLeft(reason);
  if (reason_ != reason) Log(LogLevel::kDetails, "fd {} is left to the kernel: {}", fd(), reason);
  reason_ = reason;
  Change(0, ~uint32_t{0}, EPOLLHUP);
}

bool Socket::ServeDeferred() {
  if (path() != Path::kUndecided || !deferred()) return false;
  ServeListener();
  return path() == Path::kUndecided && deferred();
}

void Socket::OpenListener(RingDoor* ring) {
  const RingDoor::Entry entry(ring);
  const engine::TcpListenerOptions options{
      .local = local_,
      // Linux: one more waits than listen() was told. What the ring has handed over waits here.
      .backlog = stream_->backlog + 1,
      .holds = true,
      .syns_per_second = static_cast<uint32_t>(faces_->settings().max_syn_rate),
      .settings = StreamSettings(),
      .kernel_socket = fd(),
      .hushed = true};
  engine::Tcp& tcp = ring->ring().tcp();
  engine::Outcome outcome = tcp.OpenListener(options, &handle_);
  if (outcome.ok()) {
    // Before it is known that the rules stand: they may, and then connections come.
    stream_->state = Stream::State::kListening;
    door_.store(ring, std::memory_order_release);
    path_.store(Path::kOffloaded, std::memory_order_seq_cst);
    ring->Register(handle_, this);
    outcome = ring->Await(handle_, 0);
  }
  if (!outcome.ok()) {
    stream_->state = Stream::State::kIdle;  // Nobody's claim is kept for it.
    return LeaveToKernelLocked(outcome.text);
  }
}

// A connection has no descriptor until it is accepted, as with the kernel: until there is one, it
// waits.
void Socket::OnAccepted(const engine::Completion& completion) {
  RingDoor* const ring = door();
  auto child = std::make_shared<Socket>(faces_, -1, SOCK_STREAM, false, offload_wanted_);
  const Received ends = ReceivedFrom(completion);
  child->handle_ = completion.socket;
  child->stream_->tcp_socket = ring->ring().tcp().Find(completion.socket);
  child->local_ = ends.destination;
  child->peer_ = ends.source;
  child->stream_->state = Stream::State::kConnected;
  child->stream_->established = true;
  child->stream_->connect_told = true;
  {
    const std::lock_guard lock(stream_->options_mutex);
    child->Inherit(stream_->options);
  }
  child->taker_ = taker_.load();
  child->door_.store(ring, std::memory_order_release);
  child->path_.store(Path::kOffloaded, std::memory_order_release);
  ring->Register(child->handle_, child.get());
  if (child->pace_.bytes_per_second != 0) child->StartPace(/*waits=*/false);
  child->Mark();
  stream_->accepted.push_back(std::move(child));
  if (taker_ == Taker::kCompletions) return TellAccepted();
  Mark();
  Change(0, 0, EPOLLIN);
}

// Who takes completions is told of each that waits by its descriptor, and then what came for it.
void Socket::TellAccepted() {
  RingDoor* const ring = door();
  for (; !stream_->accepted.empty(); stream_->accepted.pop_front()) {
    const std::shared_ptr<Socket> child = stream_->accepted.front();
    ring->ring().tcp().TookOne(handle_);
    if (child->MakeDescriptor(0) != 0) {
      Log(LogLevel::kWarning, "fd {}: a connection is reset: no descriptor for it", fd());
      ring->ring().tcp().Abort(child->handle_);
      child->DropQueue();
      ring->Forget(child->handle_, child.get());
      continue;
    }
    faces_->descriptors().Put(child->fd(), {.socket = child});
    ring->Tell({.socket = child.get(),
                .events = kAcceptedHappened,
                .packet = {.source = child->peer_, .destination = child->local_},
                .listen_fd = fd()});
    child->TakeByCompletions();
  }
}

void Socket::Inherit(const std::vector<StreamOption>& options) {
  for (const StreamOption& each : options) {
    if (IsOfListeners(each)) continue;
    SetOption(each.level, each.name, each.value.data(), static_cast<socklen_t>(each.value.size()));
  }
}

int Socket::MakeDescriptor(int flags) {
  const int made = Kernel().socket(AF_INET, SOCK_STREAM | flags, 0);
  if (made < 0) return -errno;
  const std::lock_guard lock(stream_->options_mutex);
  for (const StreamOption& each : stream_->options) {
    const auto length = static_cast<socklen_t>(each.value.size());
    Kernel().setsockopt(made, each.level, each.name, each.value.data(), length);
    // Which says a priority, too, that Linux gives to no child.
    const int none = 0;
    const bool marks = each.level == IPPROTO_IP && each.name == IP_TOS;
    if (marks) Kernel().setsockopt(made, SOL_SOCKET, SO_PRIORITY, &none, sizeof none);
  }
  fd_ = made;
  user_data = static_cast<uint64_t>(made);
  SetNonBlocking((flags & SOCK_NONBLOCK) != 0);
  return 0;
}

std::shared_ptr<Socket> Socket::Accept(int flags, int* error) {
  *error = kAskKernel;
  TakeByCalls();
  RingDoor* const ring = door();
  if (path() == Path::kClosed) *error = -EBADF;
  if (ring == nullptr || !listening()) return nullptr;
  if (taker_ == Taker::kCompletions) {
    *error = -EOPNOTSUPP;
    return nullptr;
  }
  const RingDoor::Entry entry(ring);
  ring->Progress();
  if (stream_->accepted.empty()) return nullptr;
  std::shared_ptr<Socket> child = std::move(stream_->accepted.front());
  stream_->accepted.pop_front();
  if (const int made = child->MakeDescriptor(flags); made != 0) {
    stream_->accepted.push_front(std::move(child));
    *error = made;
    return nullptr;
  }
  ring->ring().tcp().TookOne(handle_);
  Mark();
  return child;
}

// What a poll saw another thread may have taken, or another process: who slept for the next would
// not see the ring's. Other threads come one at a time, for the descriptor's flags.
int Socket::AcceptInKernel(int fd, sockaddr* address, socklen_t* length, int flags) {
  const Uncancelled whole;
  const std::lock_guard lock(stream_->kernel_accept_mutex);
  const int before = Kernel().fcntl(fd, F_GETFL);
  if (before < 0) return -errno;
  const bool blocks = (before & O_NONBLOCK) == 0;
  if (blocks) Kernel().fcntl(fd, F_SETFL, before | O_NONBLOCK);
  const int made = Kernel().accept4(fd, address, length, flags);
  const int result = made >= 0 ? made : -errno;
  if (blocks) Kernel().fcntl(fd, F_SETFL, before);
  return result;
}

// Who looks at the path, and whether a thread is here, sees the other of the two as it was left.
int Socket::AwaitInKernel(int fd, sockaddr* address, socklen_t* length, int flags) {
  struct Counted {
    explicit Counted(std::atomic<int>* count) : count(count) { ++*count; }
    ~Counted() { --*count; }
    std::atomic<int>* const count;
  };
  const Counted counted(&stream_->kernel_accepts);
  if (path_.load(std::memory_order_seq_cst) == Path::kOffloaded) return kAskKernel;
  const int made = Kernel().accept4(fd, address, length, flags);
  return made >= 0 ? made : -errno;
}

// --- Connecting ---

int Socket::ConnectStream(const sockaddr_in& peer) {
  const int begun = BeginToConnect(peer);
  // Linux: whoever may wait does, for another's attempt too.
  if ((begun != -EINPROGRESS && begun != -EALREADY) || nonblocking()) return begun;
  const int waited = WaitForConnect();
  return waited == -EINPROGRESS ? begun : waited;
}

int Socket::BeginToConnect(const sockaddr_in& peer) {
  const std::lock_guard lock(faces_->setup());
  if (path() == Path::kClosed) return -EBADF;
  switch (stream_->state) {
    case Stream::State::kIdle: break;
    case Stream::State::kConnecting: return -EALREADY;
    case Stream::State::kConnected:
      // The call after one that was going on learns that it succeeded (connect(2)).
      return stream_->connect_told.exchange(true) ? -EISCONN : 0;
    case Stream::State::kEnded:
      if (stream_->spoiled) return -EINVAL;
      if (stream_->connect_told) return -EISCONN;
      return LearnOfFailure();
    default: return kAskKernel;
  }
  TakeLeftError();
  stream_->dissolved = false;
  peer_ = FromSockaddr(peer);
  std::string why = "no port of its range is free";
  RingDoor* const ring = BindWithinRange() ? DoorForStream(&why) : nullptr;
  if (ring == nullptr) {
    LeaveToKernelLocked(why);
    return kAskKernel;
  }
  const RingDoor::Entry entry(ring);
  const engine::TcpConnectOptions options{
      .peer = peer_,
      .local = local_,
      .settings = StreamSettings(),
      .kernel_socket = local_.port != 0 ? fd() : -1};
  const engine::Outcome outcome = ring->ring().tcp().Connect(options, &handle_);
  if (!outcome.ok()) {
    LeaveToKernelLocked(outcome.text);
    return kAskKernel;
  }
  stream_->state = Stream::State::kConnecting;
  stream_->connects = true;
  // Its address is known from the route; its port, if not chosen, when it is open.
  stream_->tcp_socket = ring->ring().tcp().Find(handle_);
  local_.address = stream_->tcp_socket->local.address;
  ring->Register(handle_, this);
  door_.store(ring, std::memory_order_release);
  path_.store(Path::kOffloaded, std::memory_order_release);
  if (pace_.bytes_per_second != 0) StartPace(/*waits=*/false);
  Log(LogLevel::kDebug, "fd {}: offloaded on {}, connects to {}", fd(), ring->interface(),
      wire::ToString(peer_));
  Change(0, 0, EPOLLHUP);
  return -EINPROGRESS;
}

// Nothing was sent: the kernel's socket connects instead, and whoever waits, or asks later, learns
// from that one how it goes on. It has begun before they know: of a socket that connects nowhere
// poll() says that it is over.
void Socket::ConnectInKernel(const char* why) {
  const std::shared_ptr<Socket> self = shared_from_this();
  const engine::Handle handle = handle_;
  const std::lock_guard lock(faces_->setup());
  // Another thread may have been in the door meanwhile.
  const bool still = path() == Path::kOffloaded && handle_ == handle &&
                     stream_->state == Stream::State::kConnecting;
  if (!still) return;
  const sockaddr_in peer = ToSockaddr(peer_);
  const int flags = Kernel().fcntl(fd(), F_GETFL);
  Kernel().fcntl(fd(), F_SETFL, flags | O_NONBLOCK);
  Kernel().connect(fd(), reinterpret_cast<const sockaddr*>(&peer), sizeof peer);
  Kernel().fcntl(fd(), F_SETFL, flags);
  stream_->state = Stream::State::kIdle;
  LeaveToKernelLocked(why);
}

int Socket::WaitForConnect() {
  const auto result = Blocking(0, send_timeout_, EPOLLOUT, [this]() -> ssize_t {
    if (path() != Path::kOffloaded) return Overtaken();
    if (stream_->state == Stream::State::kConnecting) return -EAGAIN;
    if (stream_->state == Stream::State::kConnected) stream_->connect_told = true;
    return 0;
  });
  if (result == -EPIPE) {  // Another thread ended the attempt, or was told of its end.
    if (stream_->dissolved) return -EPIPE;
    const int error = TakeLeftError();
    return error != 0 ? -error : -ECONNABORTED;
  }
  if (result != 0) return result == -EAGAIN ? -EINPROGRESS : static_cast<int>(result);
  const std::lock_guard lock(faces_->setup());
  if (path() == Path::kClosed) return -EBADF;
  if (stream_->state != Stream::State::kEnded) return 0;
  if (!stream_->connect_told) return LearnOfFailure();
  // Another thread was told, or shut it.
  const int error = TakePendingError();
  return error != 0 ? -error : -ECONNABORTED;
}

// The socket may connect again, on whatever path.
int Socket::LearnOfFailure() {
  int error = 0;
  if (RingDoor* const ring = door()) {
    const RingDoor::Entry entry(ring);
    error = TakeError();
  }
  BeginAnew();
  return error != 0 ? -error : -ECONNABORTED;
}

// `error` is pending from then on.
void Socket::BeginAnew(int error) {
  path_.store(Path::kUndecided, std::memory_order_release);
  TakeDown();
  peer_ = {};
  GiveUpPort();
  error_.store(LeaveErrorInKernel(error) ? 0 : error, std::memory_order_relaxed);
  LearnLocal();
  stream_->state = Stream::State::kIdle;
  stream_->established = stream_->peer_closed = stream_->connect_told = false;
  stream_->spoiled = false;
  stream_->writable = true;
  stream_->tcp_socket = nullptr;
  read_shut_ = write_shut_ = false;
  // Who watches it watches the kernel's socket from here on.
  Change(0, 0, EPOLLHUP);
}

// So that poll() tells of it too: the kernel's socket has had a connection in this host that was
// reset, or refused. False: it cannot have this one.
bool Socket::LeaveErrorInKernel(int error) {
  const bool known = error == ECONNRESET || error == ECONNREFUSED || error == EPIPE;
  if (!known || !DeviceOf(fd()).empty()) return false;  // Of a device's none is in this host.
  const int other = Kernel().socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  auto* const address = reinterpret_cast<sockaddr*>(&name);
  socklen_t length = sizeof name;
  const bool ready = Kernel().bind(other, address, length) == 0 &&
                     (error == ECONNREFUSED || Kernel().listen(other, 1) == 0) &&
                     Kernel().getsockname(other, address, &length) == 0;
  if (ready) {
    const int flags = Kernel().fcntl(fd(), F_GETFL);
    const sockaddr nobody{.sa_family = AF_UNSPEC};
    Kernel().fcntl(fd(), F_SETFL, flags | O_NONBLOCK);
    Kernel().connect(fd(), address, length);
    if (error == EPIPE) {  // Of a reset that comes after FIN.
      constexpr linger kAtOnce{.l_onoff = 1, .l_linger = 0};
      const int peer = Kernel().accept4(other, nullptr, nullptr, SOCK_CLOEXEC);
      Kernel().shutdown(peer, SHUT_WR);
      Kernel().setsockopt(peer, SOL_SOCKET, SO_LINGER, &kAtOnce, sizeof kAtOnce);
      Kernel().close(peer);
    }
    Kernel().connect(fd(), &nobody, sizeof nobody);
    Kernel().fcntl(fd(), F_SETFL, flags);
  }
  Kernel().close(other);
  pollfd one{.fd = fd(), .events = 0};
  Kernel().poll(&one, 1, 0);
  stream_->error_in_kernel = (one.revents & POLLERR) != 0;
  return stream_->error_in_kernel;
}

// Of a connection that was, wherever it is.
int Socket::TakeLeftError() {
  int error = error_.exchange(0, std::memory_order_relaxed);
  if (!stream_->error_in_kernel.exchange(false) || error != 0) return error;
  socklen_t length = sizeof error;
  Kernel().getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

// Linux: a connection that is open is reset, here too; so is an attempt, of which no segment says
// so. Who waits is woken, and the socket is as new.
void Socket::EndStreamAnew(bool by_shutdown) {
  RingDoor* const ring = door();
  stream_->dissolved = !by_shutdown;
  {
    const RingDoor::Entry entry(ring);
    // Before the rule goes: else the kernel would answer what comes meanwhile.
    const sockaddr nobody{.sa_family = AF_UNSPEC};
    if (listening()) Kernel().connect(fd(), &nobody, sizeof nobody);
    // Where both have said FIN nothing is reset.
    const bool both = stream_->peer_closed && write_shut_;
    const bool ends = stream_->state == Stream::State::kConnecting ||
                      (stream_->state == Stream::State::kConnected && !both);
    if (ends) {
      ring->ring().tcp().Abort(handle_);
      stream_->state = Stream::State::kEnded;
      error_.store(ECONNRESET, std::memory_order_relaxed);
    }
  }
  BeginAnew(error_.load(std::memory_order_relaxed));
}

}  // namespace xtreme::sockets
