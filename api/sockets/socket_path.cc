// SPDX-License-Identifier: Apache-2.0
//
// Which way a socket goes: onto a ring, or to the kernel and why.

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "api/sockets/faces.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/log.h"
#include "api/sockets/socket.h"
#include "api/sockets/stream.h"
#include "stack/packet/buffer_pool.h"
#include "stack/wire/address_text.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::sockets {
namespace {

// Cookies of operations on a socket's handle.
constexpr uint64_t kOpenCookie = 0;

void ReleaseAll(std::set<packet::Buffer*>* held) {
  for (packet::Buffer* each : *held) packet::BufferPool::ReleaseChain(each);
  held->clear();
}

int IntOption(int fd, int level, int name) {
  int value = 0;
  socklen_t length = sizeof value;
  return Kernel().getsockopt(fd, level, name, &value, &length) == 0 ? value : 0;
}

}  // namespace

Socket::Socket(Faces* faces, int fd, int type, bool nonblocking, bool offload)
    : user_data(static_cast<uint64_t>(fd)),
      faces_(faces),
      fd_(fd),
      type_(type),
      nonblocking_(nonblocking),
      offload_wanted_(offload) {
  if (faces->settings().socketxtreme) taker_ = Taker::kCompletions;
  choice_.logic = faces->settings().ring_logic();
  if (type == SOCK_STREAM) stream_ = std::make_unique<Stream>();
}

Socket::~Socket() { EndClaim(); }

void Socket::EndClaim() {
  if (stream_ == nullptr || stream_->claim < 0) return;
  const Uncancelled whole;
  Kernel().close(std::exchange(stream_->claim, -1));
}

void Socket::Decide() {
  const ErrnoKept kept;
  const std::lock_guard lock(faces_->setup());
  if (path() != Path::kUndecided) return;
  if (stream_ == nullptr && bound_) DecideLocked();
  if (stream_ != nullptr && stream_->state == Stream::State::kOffered) ServeListener();
}

// Reasons that no ring can change; "": none.
std::string Socket::WhyNot() const {
  if (!faces_->enabled()) return "no RDMA device";
  if (!offload_wanted_) return "offloading is off for its thread";
  if (reuse_port_ && !TakesGroups()) {
    return "SO_REUSEPORT: the kernel divides what comes among its sockets";
  }
  if (local_.address.IsLoopback()) return "bound to a loopback address";
  if (peer_.port == 0) {
    return RuleAgainst(stream_ != nullptr ? Role::kTcpServer : Role::kUdpReceiver, local_, peer_);
  }
  return RuleAgainst(stream_ != nullptr ? Role::kTcpClient : Role::kUdpConnect, peer_, local_);
}

// What goes to a group comes to each of its sockets, also of those with SO_REUSEPORT.
bool Socket::TakesGroups() const {
  if (stream_ != nullptr) return false;
  return local_.address.IsMulticast() || (local_.address.IsAny() && !memberships_.empty());
}

std::string Socket::RuleAgainst(Role role, const wire::Endpoint& first,
                                const wire::Endpoint& second) const {
  std::string line;
  return faces_->rules().Offloads(role, first, second, &line) ? "" : "rule: " + line;
}

int Socket::ChooseRing(const RingChoice& choice) {
  const std::lock_guard lock(faces_->setup());
  if (door() != nullptr) return -EBUSY;
  choice_ = choice;
  separator_.reset();
  return 0;
}

uint64_t Socket::Separator() const {
  switch (choice_.logic) {
    case RingLogic::kPerAddress: return local_.address.value();
    case RingLogic::kPerSocket: return static_cast<uint64_t>(fd());
    case RingLogic::kPerUserId: return choice_.user_id;
    case RingLogic::kPerThread: return opener_;
    case RingLogic::kPerCore:
    case RingLogic::kPerBoundCore: return static_cast<uint64_t>(sched_getcpu());
    default: return 0;
  }
}

RingKey Socket::KeyOn(const std::string& interface) {
  if (!separator_) {
    separator_ = Separator();
    if (choice_.logic == RingLogic::kPerBoundCore) {
      cpu_set_t core;
      CPU_ZERO(&core);
      CPU_SET(*separator_, &core);
      pthread_setaffinity_np(pthread_self(), sizeof core, &core);
    }
  }
  return {interface, choice_.logic, *separator_, choice_.profile};
}

void Socket::DecideLocked() {
  std::string why = WhyNot();
  if (!why.empty()) return LeaveToKernelLocked(why);
  std::string interface = DeviceOf(fd());
  const bool own_address = !local_.address.IsAny() && !local_.address.IsMulticast();
  if (interface.empty() && own_address) interface = InterfaceOf(local_.address);
  if (interface.empty() && peer_.port != 0) {
    const auto departure = DepartureTo(fd(), peer_, group_interface_);
    if (!departure) return LeaveToKernelLocked("its peer is in this host, or has no route");
    interface = departure->interface;
  }
  if (interface.empty() && !memberships_.empty()) interface = memberships_.begin()->interface;
  const RingKey key = KeyOn(interface);
  RingDoor* const door =
      interface.empty() ? faces_->AnyDoor(key, &why) : faces_->DoorOf(key, &why);
  if (door == nullptr) return LeaveToKernelLocked(why);
  if (!OpenOn(door)) return;
  Log(LogLevel::kDebug, "fd {}: offloaded on {} as {}", fd(), door->interface(),
      wire::ToString(local_));
}

bool Socket::OpenOn(RingDoor* door) {
  const RingDoor::Entry entry(door);
  const Rules& rules = faces_->rules();
  sender_rules_ = rules.HasSenders() ? std::make_unique<const Rules>(rules) : nullptr;
  engine::UdpOptions options{.local = local_,
                             .reuse = reuse_port_ || IntOption(fd(), SOL_SOCKET, SO_REUSEADDR) != 0,
                             .flow_tag = FlowTagOnRing(),
                             .kernel_unicast = reuse_port_,
                             .kernel_socket = fd()};
  engine::Udp& udp = door->ring().udp();
  engine::Outcome outcome = udp.Open(options, &handle_);
  if (outcome.ok()) {
    // Before it is known that the rules stand: they may, and then packets come.
    udp_socket_ = udp.Find(handle_);
    door_.store(door, std::memory_order_release);
    path_.store(Path::kOffloaded, std::memory_order_release);
    door->Register(handle_, this);
    outcome = door->Await(handle_, kOpenCookie);
  }
  if (!outcome.ok()) {
    LeaveToKernelLocked(outcome.text);
    return false;
  }
  CopySettings();
  for (const Membership& each : memberships_) {
    if (!JoinOnRing(each)) return false;
  }
  if (peer_.port != 0) udp.Connect(handle_, peer_, kOpenCookie);
  if (pace_.bytes_per_second != 0) {
    const engine::Outcome paced = StartPace(/*waits=*/true);
    if (!paced.ok()) {
      LeaveToKernelLocked(paced.text);
      return false;
    }
  }
  Mark();
  return true;
}

bool Socket::JoinOnRing(const Membership& membership) {
  RingDoor* const ring = door();
  if (membership.interface != ring->interface()) {
    LeaveToKernelLocked("it joined a group on " + membership.interface + ", its ring is on " +
                        ring->interface());
    return false;
  }
  const wire::Endpoint group{membership.group, local_.port};
  if (std::string rule = RuleAgainst(Role::kUdpReceiver, group, {}); !rule.empty()) {
    LeaveToKernelLocked(rule);
    return false;
  }
  const RingDoor::Entry entry(ring);
  const auto source =
      membership.source.IsAny() ? std::nullopt : std::optional(membership.source);
  const uint64_t cookie = 1 + membership.group.value();
  engine::Outcome outcome =
      ring->ring().udp().Join(handle_, {membership.group, 0}, source,
                              membership.exclude ? uint32_t{engine::kExcludeSource} : 0, cookie);
  if (outcome.ok()) outcome = ring->Await(handle_, cookie);
  if (outcome.ok()) return true;
  LeaveToKernelLocked(outcome.text);
  return false;
}

void Socket::LeaveToKernel(const std::string& reason) {
  if (fd() < 0) return;  // A child that inherits: a connection of the ring.
  const std::lock_guard lock(faces_->setup());
  LeaveToKernelLocked(reason);
}

void Socket::LeaveToKernelLocked(const std::string& reason) {
  if (path() == Path::kKernel || path() == Path::kClosed) return;
  reason_ = reason;
  // First: who is inside the door finds either both path and ring, or neither.
  path_.store(Path::kKernel, std::memory_order_release);
  TakeDown();
  EndClaim();
  faces_->CountLeft(reason);
  Log(LogLevel::kDetails, "fd {} is left to the kernel: {}", fd(), reason);
  // Who waits on the ring's side goes on at the kernel's.
  Change(0, ~uint32_t{0}, EPOLLHUP);
}

void Socket::WantSignals() {
  const std::lock_guard lock(faces_->setup());
  if (path() == Path::kOffloaded && stream_ != nullptr) {
    Log(LogLevel::kWarning, "fd {} is on a ring, of which SIGIO never comes (O_ASYNC)", fd());
  } else if (path() == Path::kOffloaded || path() == Path::kUndecided) {
    LeaveToKernelLocked("O_ASYNC: SIGIO is the kernel's");
  }
}

void Socket::TakeDown() {
  RingDoor* const ring = door();
  if (ring == nullptr) return;
  const RingDoor::Entry entry(ring);
  const Passage passage;
  counters_ = counters();
  if (stream_ == nullptr) ring->ring().udp().Close(handle_, /*detach=*/true);
  if (stream_ != nullptr) CloseStream(ring);
  ring->Forget(handle_, this);
  // The kernel's socket goes on with what was begun.
  if (parts_ != nullptr && path() == Path::kKernel) PartsToKernel(MSG_MORE | MSG_DONTWAIT);
  parts_.reset();
  DropQueue();
  if (path() == Path::kClosed) ReleaseAll(&held_);  // Else the program has them still.
  // The port is the kernel socket's alone again when this returns. One that a connect took for
  // itself was never its.
  if (bound_) ring->ring().core().host.control->RunAndWait([] {});
  if (stream_ == nullptr && path() != Path::kClosed) SetForRing(false);
  door_.store(nullptr, std::memory_order_release);
  handle_ = 0;
  SetPlain();
  Change(0, ~uint32_t{0}, 0);
}

void Socket::WarnOfParents() const {
  static std::atomic<bool> warned{false};
  if (path() != Path::kParents || warned.exchange(true)) return;
  Log(LogLevel::kWarning,
      "fd {}: a child of fork() cannot use its parent's connection to {}, nor can what it "
      "executes: leave the program to the kernel by a rule",
      fd(), wire::ToString(peer_));
}

ssize_t Socket::Elsewhere() {
  switch (path()) {
    // Of a connection that was ended; the kernel's socket knows of none.
    case Path::kUndecided:
      if (const int error = error_.exchange(0, std::memory_order_relaxed)) return -error;
      return kAskKernel;
    case Path::kParents: WarnOfParents(); return -EOPNOTSUPP;
    case Path::kClosed: return -EBADF;
    default: return kAskKernel;
  }
}

// Linux: of a connection that another thread dissolved.
ssize_t Socket::Overtaken() {
  return stream_ != nullptr && path() == Path::kUndecided ? -EPIPE : Elsewhere();
}

void Socket::SetPlain() {
  const Taker taker = taker_.load(std::memory_order_relaxed);
  const bool hears = !callback_ && !deaf_;
  const bool connected =
      stream_ == nullptr ? peer_.port != 0 : stream_->state == Stream::State::kConnected;
  const bool goes_on = stream_ == nullptr || (connected && !stream_->peer_closed);
  const bool open = path() == Path::kOffloaded && error_.load(std::memory_order_relaxed) == 0;
  const bool sends = open && !write_shut_ && !in_parts_.load(std::memory_order_relaxed) &&
                     sender_rules_ == nullptr;
  // The first that receives decides, the long way.
  const bool receives = open && hears && taker == Taker::kCalls && goes_on && !read_shut_ &&
                        low_water_.load(std::memory_order_relaxed) == 1 &&
                        (stream_ == nullptr || stream_->peek_offset < 0);
  const bool hands_on =
      hears && taker == Taker::kCompletions && !(read_shut_ && write_shut_);
  const bool datagrams = stream_ == nullptr;
  const uint8_t before = plain_;
  const bool sends_bytes = !datagrams && connected && !stream_->bounds_unsent;
  plain_ = static_cast<uint8_t>((sends && datagrams && connected ? kSends : 0) |
                                (sends && sends_bytes ? kSendsBytes : 0) |
                                (sends && datagrams ? kSendsTo : 0) | (receives ? kReceives : 0) |
                                (receives && queue_.empty() ? kTakesNext : 0) |
                                (hands_on ? kHandsOn : 0));
  if (((before ^ plain_) & kHandsOn) != 0 && door() != nullptr) door()->ForgetLinks();
  SetAlone();
}

// The flow to its peer is its socket's as long as that lives.
void Socket::SetAlone() {
  alone_.owner = RingDoor::kNobody;
  RingDoor* const ring = door();
  const bool plain = (plain_ & kSends) != 0 && ring != nullptr && ring->single() && !awaited(kSent);
  if (!plain || udp_socket_->flows == nullptr) return;
  alone_.owner = ring->alone();
  alone_.flows = udp_socket_->flows.get();
  alone_.core = &ring->ring().core();
}

// There is one thread: who watches is inside too.
void Socket::WatchedChanged() {
  RingDoor* const ring = door();
  if (ring != nullptr && ring->single()) SetAlone();
}

SocketCounters Socket::counters() const {
  SocketCounters all = counters_;
  if (stream_ != nullptr || door() == nullptr) return all;
  const udp::EndpointCounters& ring = udp_socket_->counters();
  all.received += ring.datagrams;
  all.received_bytes += ring.bytes;
  if (const engine::SendFlows* const flows = udp_socket_->flows.get()) {
    all.sent += flows->counters.sent + flows->waiting;
    all.sent_bytes += flows->counters.sent_bytes + flows->waiting_bytes;
  }
  return all;
}

void Socket::EndStream(RingDoor* inside) {
  if (stream_ != nullptr && door() == inside) CloseStream(inside);
}

void Socket::Close() {
  const std::lock_guard lock(faces_->setup());
  path_.store(Path::kClosed, std::memory_order_release);
  TakeDown();
  ReleaseAll(&held_);  // Of a ring that it left before.
  // A sleeper looks, and finds it gone.
  Change(POLLNVAL, ~uint32_t{0}, EPOLLHUP);
  SayGone();
}

void Socket::AfterFork() {
  Pollable::AfterFork();
  if (stream_ == nullptr) return;
  for (std::mutex* each : {&stream_->options_mutex, &stream_->kernel_accept_mutex}) {
    std::construct_at(each);
  }
}

void Socket::BecomeParents() {
  door_.store(nullptr);
  queue_.clear();
  held_.clear();
  path_.store(stream_ == nullptr ? Path::kKernel : Path::kParents);
  SetPlain();
  // The name is the parent's as long as anybody has it.
  EndClaim();
}

void Socket::TakeByCalls() {
  if (taker_ != Taker::kUndecided) return;
  std::optional<RingDoor::Entry> entry;
  if (door() != nullptr) entry.emplace(door());
  if (taker_ != Taker::kUndecided) return;
  taker_ = Taker::kCalls;
  if (entry) SetPlain();
}

// What came before belongs to the same stream of completions, and what happened before to that.
void Socket::TakeByCompletions() {
  if (taker_ == Taker::kCompletions) return;
  taker_ = Taker::kCompletions;
  const auto tell = [this](uint64_t events) { door()->Tell({.socket = this, .events = events}); };
  if (stream_ != nullptr && stream_->connects && stream_->established) tell(EPOLLOUT);
  for (const Received& packet : queue_) {
    door()->Tell({.socket = this, .events = kPacketHappened, .packet = packet});
  }
  queue_.clear();
  queued_bytes_ = 0;
  if (stream_ != nullptr) {
    if (stream_->peer_closed) tell(EPOLLIN | EPOLLRDHUP);
    if (stream_->state == Stream::State::kEnded) TellOfEnd();
    TellAccepted();
  } else if (error_.load(std::memory_order_relaxed) != 0) {
    tell(EPOLLERR);
  }
  Mark();
}

}  // namespace xtreme::sockets
