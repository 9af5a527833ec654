// SPDX-License-Identifier: Apache-2.0
//
// A program that makes seeded sequences of socket calls on several descriptors at a time, while the
// peer sends, closes, resets and connects, and writes down what each call said: run by the kernel
// and by rings, its transcripts are to be the same.
//
//   sequences_subject SOCKET OWN-ADDRESS PEER-ADDRESS SEED SEQUENCES FIRST-PORT [CALL,CALL,...]
//
// FIRST-PORT: no other run had ports from there on, kPortsOfASequence each. With CALLs only these
// of each sequence are made.
//
// Not among the calls, for they are known to differ (docs/porting-from-vma.md): bytes that are held
// back for a time (MSG_MORE, TCP_CORK of connections), fragments beside whole datagrams (their
// order), and what each call says that it leaves out. Threads: one.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/faces/sequences.h"

namespace xtreme::faces {
namespace {

// --- Slots ---

Slot& Any(Sequence& all) { return all.slots[static_cast<size_t>(all.run.Pick(Sequence::kSlots))]; }

// One that has something; null: none has, or not what is wanted.
Slot* Some(Sequence& all, Kind kind = Kind::kNothing) {
  const int first = all.run.Pick(Sequence::kSlots);
  for (int i = 0; i < Sequence::kSlots; ++i) {
    Slot& each = all.slots[static_cast<size_t>((first + i) % Sequence::kSlots)];
    if (each.fd >= 0 && (kind == Kind::kNothing || each.kind == kind)) return &each;
  }
  return nullptr;
}

void CloseSlot(Slot& slot) {
  if (slot.fd >= 0) Say("close", close(slot.fd));
  slot = {};
}

// --- The peer ---

void Use(Sequence& all, const Slot& slot) {
  Tell(all.run, "use " + std::to_string(slot.theirs), /*quietly=*/true);
}

int NextStream(Sequence& all) {
  Tell(all.run, "use " + std::to_string(++all.streams), /*quietly=*/true);
  return all.streams;
}

// The same, but its port is not to be read.
void TellOfPort(Sequence& all, const std::string& command, int port) {
  printf("peer: %s: ", command.c_str());
  puts(AnswerTo(all.run, command + " " + std::to_string(port)).c_str());
}

void PeerConnects(Sequence& all, const Slot& listener) {
  const int number = NextStream(all);
  TellOfPort(all, "connect 0", listener.port);
  all.coming.push_back(number);
  all.ports.push_back(listener.port);
  Settle(all.run);
  if (all.run.Pick(4) == 0) Tell(all.run, "send 9");
  if (all.run.Pick(8) == 0) Tell(all.run, all.run.Pick(2) ? "reset" : "close");
}

void OfStream(Sequence& all, const Slot& slot) {
  Run& run = all.run;
  if (slot.theirs == 0) return;
  Use(all, slot);
  const std::string size = std::to_string(run.Of({0, 1, 13, 100, 1448, 2000}));
  switch (run.Pick(12)) {
    case 0:
      return Tell(run, "shutdown");
    case 1:
      return Tell(run, run.Pick(2) ? "close" : "reset");
    case 2:
    case 3:
      return Tell(run, "receive");
    default:
      return Tell(run, "send " + size);
  }
}

void OfDatagrams(Sequence& all, const Slot& slot) {
  const std::string size = std::to_string(all.run.Of({0, 1, 13, 100, 1472}));
  switch (slot.port == 0 ? 0 : all.run.Pick(6)) {
    case 0:
      return Tell(all.run, "datagrams");
    case 1:
      return TellOfPort(all, "stray " + size, slot.port);
    case 2:
      return TellOfPort(all, "group " + size, slot.port);
    default:
      return TellOfPort(all, "datagram " + size, slot.port);
  }
}

void OfPeer(Sequence& all) {
  const Slot* const slot = Some(all);
  if (slot == nullptr) return;
  switch (slot->kind) {
    case Kind::kListener:
      return slot->port == 0 ? void() : PeerConnects(all, *slot);
    case Kind::kStream:
      return OfStream(all, *slot);
    default:
      return OfDatagrams(all, *slot);
  }
}

// --- What slots begin with ---

// Bound to a port that nothing in this run had before.
int Bound(Sequence& all, Slot& slot, int type, bool any_address) {
  Run& run = all.run;
  const in_addr own = run.own.sin_addr;
  if (any_address) run.own.sin_addr = {};
  slot.port = all.first_port + all.ports_taken++ % kPortsOfASequence;
  const int fd = NewSocket(run, type, slot.port);
  run.own.sin_addr = own;
  return fd;
}

// `waits`: until it is told.
void OpenStream(Sequence& all, Slot& slot) {
  Run& run = all.run;
  slot.kind = Kind::kStream;
  slot.fd = run.Pick(4) ? NewSocket(run, SOCK_STREAM, 0) : Bound(all, slot, SOCK_STREAM, false);
  const bool watched = run.Pick(4) == 0;
  const bool waits = run.Pick(4) == 0;
  if (waits) fcntl(slot.fd, F_SETFL, O_RDWR);
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.u64 = 77}};
  if (watched) epoll_ctl(all.sets[0], EPOLL_CTL_ADD, slot.fd, &event);
  slot.theirs = NextStream(all);
  sockaddr_in to = PeerAt(all, run.Pick(8) ? kPeerTcpPort : 9);
  Say("connect", connect(slot.fd, Generic(&to), sizeof to));
  if (waits) fcntl(slot.fd, F_SETFL, O_RDWR | O_NONBLOCK);
  WaitUntil(slot.fd, POLLOUT);
  Settle(run);
  run.fd = slot.fd;
  SendAtOnce(run);
  if (ntohs(to.sin_port) == kPeerTcpPort) Tell(run, "accept");
  if (run.Pick(3) == 0) Say("connect", connect(slot.fd, Generic(&to), sizeof to));
  WaitUntil(slot.fd, POLLOUT);
}

void OpenListener(Sequence& all, Slot& slot) {
  slot.kind = Kind::kListener;
  slot.fd = Bound(all, slot, SOCK_STREAM, all.run.Pick(3) == 0);
  Say("listen", listen(slot.fd, 16));
  // From here on it is on a ring.
  pollfd one{.fd = slot.fd, .events = POLLIN};
  poll(&one, 1, 0);
}

void OpenDatagrams(Sequence& all, Slot& slot) {
  Run& run = all.run;
  slot.kind = Kind::kDatagrams;
  const int how = run.Pick(4);
  slot.fd = how == 0 ? NewSocket(run, SOCK_DGRAM, 0) : Bound(all, slot, SOCK_DGRAM, how == 1);
  sockaddr_in to = PeerAt(all, kPeerUdpPort);
  if (run.Pick(2)) Say("connect", connect(slot.fd, Generic(&to), sizeof to));
}

void OpenNew(Sequence& all, Slot& slot) {
  slot.kind = all.run.Pick(2) ? Kind::kStream : Kind::kDatagrams;
  slot.fd = NewSocket(all.run, slot.kind == Kind::kStream ? SOCK_STREAM : SOCK_DGRAM, 0);
}

void Open(Sequence& all) {
  Slot& slot = Any(all);
  if (slot.fd >= 0 && all.run.Pick(2)) return;
  CloseSlot(slot);
  Settle(all.run);
  const int any = all.run.Pick(8);
  constexpr int kUsual[] = {0, 0, 3, 5};
  const bool usual = all.mostly != Kind::kNothing && all.run.Pick(3) != 0;
  switch (usual ? kUsual[static_cast<int>(all.mostly)] : any) {
    case 0:
    case 1:
    case 2:
      return OpenStream(all, slot);
    case 3:
    case 4:
      return OpenListener(all, slot);
    case 5:
    case 6:
      return OpenDatagrams(all, slot);
    default:
      return OpenNew(all, slot);
  }
}

void Accept(Sequence& all) {
  const Slot* const listener = Some(all, Kind::kListener);
  if (listener == nullptr) return;
  const int port = listener->port;
  Slot& slot = Any(all);
  if (&slot == listener) return;
  sockaddr_in from{};
  socklen_t length = all.run.Of({16u, 16u, 4u, 100u});
  const int flags = all.run.Of<int>({SOCK_NONBLOCK, SOCK_NONBLOCK | SOCK_CLOEXEC, 0});
  const int fd = accept4(listener->fd, Generic(&from), &length, flags);
  Say("accept", fd < 0 ? -1 : 0, fd < 0 ? "" : std::to_string(length));
  if (fd < 0) return;
  Say("its flags", fcntl(fd, F_GETFL) | fcntl(fd, F_GETFD) << 20);
  fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
  CloseSlot(slot);
  slot = {.fd = fd, .kind = Kind::kStream};
  for (size_t i = 0; i < all.ports.size(); ++i) {
    if (all.ports[i] != port) continue;
    slot.theirs = all.coming[i];
    all.ports.erase(all.ports.begin() + static_cast<ptrdiff_t>(i));
    all.coming.erase(all.coming.begin() + static_cast<ptrdiff_t>(i));
    break;
  }
  all.run.fd = fd;
  SendAtOnce(all.run);
}

void Copy(Sequence& all) {
  const Slot* const from = Some(all);
  Slot& to = Any(all);
  if (from == nullptr || from == &to) return;
  const Slot copied = *from;
  const int old = to.fd;
  int fd = -1;
  if (old >= 0 && all.run.Pick(2)) {
    fd = all.run.Pick(2) ? dup2(copied.fd, old) : dup3(copied.fd, old, O_CLOEXEC);
    Say("dup2", fd == old);
    to = {};
  } else {
    fd = all.run.Pick(2) ? dup(copied.fd) : fcntl(copied.fd, F_DUPFD_CLOEXEC, 60);
    Say("dup", fd < 0 ? -1 : fcntl(fd, F_GETFD));
  }
  CloseSlot(to);
  to = copied;
  to.fd = fd;
}

// --- Children ---

// A child that closes and copies what it has, as programs do before they begin another, and ends:
// what its parent has goes on. Of a listener the kernel's side is both's.
void Fork(Sequence& all) {
  const int closes = all.run.Pick(1 << Sequence::kSlots);
  const int end = all.run.Pick(4);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < Sequence::kSlots; ++i) {
      const int fd = all.slots[static_cast<size_t>(i)].fd;
      if (fd >= 0 && (closes >> i & 1) != 0) i % 2 ? void(close(fd)) : void(dup2(0, fd));
    }
    if (closes % 3 == 0) close(all.sets[0]);
    if (end == 0) execl("/bin/true", "true", nullptr);
    if (end == 1) closefrom(3);
    if (end == 2) exit(0);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  Say("child", status);
}

// --- Readiness ---

// A wait is for nothing in the end, or it is over at once.
int Time(Run& run) { return run.Of({0, 0, 0, 0, 0, 0, 5}); }

void Poll(Sequence& all) {
  constexpr int16_t kRarely = POLLRDNORM | POLLWRNORM | POLLRDBAND | POLLWRBAND;
  std::array<pollfd, Sequence::kSlots + 3> some{};
  for (size_t i = 0; i < some.size(); ++i) {
    const int fd = i < all.slots.size() ? all.slots[i].fd
                                        : std::array{all.sets[0], all.sets[1], 900}[i - 5];
    const bool left_out = all.run.Pick(3) == 0;
    some[i] = {.fd = left_out ? -1 : fd,
               .events = all.run.Of<int16_t>({POLLIN, POLLOUT, POLLIN | POLLOUT | POLLRDHUP,
                                              POLLPRI, 0, kRarely})};
  }
  const int ready = poll(some.data(), some.size(), Time(all.run));
  std::string told;
  for (const pollfd& each : some) {
    char one[32];
    snprintf(one, sizeof one, "%#x:%#x ", each.events, each.revents);
    told += one;
  }
  Say("poll", ready, told);
}

void Select(Sequence& all) {
  fd_set sets[3] = {};
  int most = 0;
  for (const Slot& each : all.slots) {
    for (fd_set& set : sets) {
      if (each.fd >= 0 && all.run.Pick(3)) FD_SET(each.fd, &set), most = std::max(most, each.fd);
    }
  }
  timeval time{.tv_sec = 0, .tv_usec = 1'000 * Time(all.run)};
  fd_set* const except = all.run.Pick(2) ? &sets[2] : nullptr;
  const int ready = select(most + 1, &sets[0], &sets[1], except, &time);
  std::string told;
  for (const Slot& each : all.slots) {
    for (int i = 0; i < (except == nullptr ? 2 : 3); ++i) {
      told += each.fd >= 0 && FD_ISSET(each.fd, &sets[i]) ? '1' : '0';
    }
    told += ' ';
  }
  Say("select", ready, told);
}

void ChangeSet(Sequence& all) {
  Run& run = all.run;
  const int operation =
      run.Of<int>({EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL});
  const uint32_t mode =
      run.Of<uint32_t>({0, 0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT, EPOLLEXCLUSIVE});
  const int index = run.Pick(Sequence::kSlots + 1);
  const int which = run.Pick(2);
  // The second is in the first, sometimes; never the other way round.
  const bool nests = index == Sequence::kSlots;
  const int fd = nests ? all.sets[1] : all.slots[static_cast<size_t>(index)].fd;
  const int set = all.sets[nests ? 0 : static_cast<size_t>(which)];
  epoll_event event{
      .events = mode | run.Of<uint32_t>({EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT | EPOLLRDHUP,
                                         EPOLLIN | EPOLLRDNORM | EPOLLPRI, 0}),
      .data = {.u64 = static_cast<uint64_t>(index) << 40 | static_cast<uint64_t>(run.Pick(100))}};
  char what[96];
  snprintf(what, sizeof what, "epoll_ctl %d of %d in %d for %#x", operation, index, which,
           event.events);
  Say(what, epoll_ctl(set, operation, fd, &event));
}

void WaitSet(Sequence& all) {
  std::array<epoll_event, 16> events{};
  const int which = all.run.Pick(2);
  const int ready = epoll_wait(all.sets[static_cast<size_t>(which)], events.data(), 16,
                               Time(all.run));
  // Their order is not promised.
  std::multiset<std::string> sorted;
  for (int i = 0; i < ready; ++i) {
    const epoll_event& each = events[static_cast<size_t>(i)];
    char one[64];
    snprintf(one, sizeof one, "%llx:%#x ", static_cast<unsigned long long>(each.data.u64),
             each.events);
    sorted.insert(one);
  }
  std::string told = "of " + std::to_string(which) + ": ";
  for (const std::string& each : sorted) told += each;
  Say("epoll_wait", ready, told);
}

// --- More than the peer takes ---

int StateOf(int fd) {
  tcp_info about{};
  socklen_t length = sizeof about;
  const int result = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &about, &length);
  return result == 0 ? about.tcpi_state : -1;
}

int CountAtPeer(Sequence& all) {
  const std::string answer = AnswerTo(all.run, "receive");
  return static_cast<int>(strtol(answer.c_str(), nullptr, 10));
}

// How much that is depends on who sends; that it all arrives does not.
void Fill(Sequence& all) {
  const Slot* const slot = Some(all, Kind::kStream);
  if (slot == nullptr || slot->theirs == 0 || StateOf(slot->fd) != TCP_ESTABLISHED) return;
  Use(all, *slot);
  if (AnswerTo(all.run, "receive").ends_with("end")) return;
  constexpr int kMost = 64 << 20;
  int sent = 0;
  ssize_t last = 1;
  while (sent < kMost && last > 0) {
    last = send(slot->fd, Pattern(0), 60'000, MSG_NOSIGNAL | MSG_DONTWAIT);
    sent += last > 0 ? static_cast<int>(last) : 0;
  }
  const bool full = last == -1 && errno == EAGAIN;
  Say("send until it is full", last);
  if (!full) return;
  int came = 0;
  // A ring sends while it is called.
  for (int i = 0; i < 20'000 && came < sent; ++i) {
    Settle(all.run);
    came += CountAtPeer(all);
  }
  Say("what came is what was sent", came == sent);
  pollfd one{.fd = slot->fd, .events = POLLOUT};
  Say("poll", poll(&one, 1, 10'000));
}

// --- Errors that come by ICMP ---

void Refused(Sequence& all) {
  Slot* const slot = Some(all, Kind::kDatagrams);
  if (slot == nullptr) return;
  Tell(all.run, "deaf");
  Say("send", send(slot->fd, "x", 1, MSG_NOSIGNAL));
  Settle(all.run);
  // A ring hears of it by a thread, which the fence does not wait for.
  pollfd one{.fd = slot->fd, .events = 0};
  sockaddr_in peer{};
  socklen_t length = sizeof peer;
  const bool connected = getpeername(slot->fd, Generic(&peer), &length) == 0 &&
                         peer.sin_addr.s_addr == all.run.peer.sin_addr.s_addr;
  const int ready = poll(&one, 1, connected ? 1'000 : 0);
  Say("error", ready, std::to_string(one.revents));
  Tell(all.run, "hearing");
}

// --- Sequences ---

// A ring gives the port of a connection back before it tells that it has ended.
void AwaitEnds(const Sequence& all) {
  for (const Slot& each : all.slots) {
    const bool ended = each.kind == Kind::kStream && StateOf(each.fd) == TCP_CLOSE;
    pollfd one{.fd = each.fd, .events = 0};
    if (ended) poll(&one, 1, 1'000);
  }
}

template <void (*call)(Sequence&, Slot&)>
void OfSome(Sequence& all) {
  Slot* const slot = Some(all);
  if (slot == nullptr) return;
  printf("on %d ", static_cast<int>(slot - all.slots.data()));
  call(all, *slot);
}

void CloseSome(Sequence& all) {
  Slot* const slot = Some(all);
  if (slot != nullptr && all.run.Pick(2)) CloseSlot(*slot);
}

void CloseSet(Sequence& all) {
  if (all.run.Pick(3) != 0) return;
  int& set = all.sets[static_cast<size_t>(all.run.Pick(2))];
  Say("close of a set", close(set));
  set = epoll_create1(EPOLL_CLOEXEC);
}

using Call = void (*)(Sequence&);
constexpr Call kCalls[] = {
    Open, Open, Open, Accept, Accept, Copy, CloseSome, CloseSet, Refused,
    OfPeer, OfPeer, OfPeer, OfPeer, OfPeer, OfPeer, OfPeer, OfPeer,
    Poll, Poll, Poll, Select, Select,
    ChangeSet, ChangeSet, ChangeSet, ChangeSet, WaitSet, WaitSet, WaitSet, WaitSet,
    OfSome<SendSome>, OfSome<SendSome>, OfSome<SendSome>, OfSome<SendSomeTo>,
    OfSome<ReceiveSome>, OfSome<ReceiveSome>, OfSome<ReceiveSome>, OfSome<ReceiveMessages>,
    OfSome<ReceiveWaiting>, OfSome<AskOption>, OfSome<AskOption>, OfSome<SetOption>,
    OfSome<SetOption>, OfSome<AskName>, OfSome<AskNumbers>, OfSome<AskNumbers>, OfSome<ShutDown>,
    OfSome<Misuse>, Fill, Fork, Fork,
};

void End(Sequence& all) {
  puts("end");
  for (Slot& each : all.slots) {
    Settle(all.run);
    if (each.fd >= 0) CloseSlot(each);
    Settle(all.run);
  }
  for (int i = 1; i <= all.streams; ++i) {
    Tell(all.run, "use " + std::to_string(i), /*quietly=*/true);
    Tell(all.run, "receive");
    Tell(all.run, "reset", /*quietly=*/true);
  }
  Tell(all.run, "datagrams");
  for (int& each : all.sets) close(each), each = -1;
  Settle(all.run);
}

// `only`: these of its calls; empty: all.
void Make(Sequence& all, uint32_t seed, const std::set<uint32_t>& only) {
  all.streams = all.ports_taken = 0;
  all.coming.clear(), all.ports.clear();
  for (int& each : all.sets) each = epoll_create1(EPOLL_CLOEXEC);
  // Those of a few kinds, so that each is made often enough to meet the others.
  all.run.random.seed(seed);
  std::vector<Call> calls;
  for (const Call each : kCalls) {
    if (all.run.Pick(2)) calls.push_back(each);
  }
  all.mostly = static_cast<Kind>(all.run.Pick(4));
  for (uint32_t i = 0; i < kCallsOfASequence; ++i) {
    if (!only.empty() && !only.contains(i)) continue;
    all.run.random.seed(seed * kCallsOfASequence + i);
    // The first opens something.
    printf("%u: ", i);
    const auto one = static_cast<size_t>(all.run.Pick(static_cast<int>(calls.size())));
    (i < 3 ? Open : calls[one])(all);
    puts("");
    Settle(all.run);
    AwaitEnds(all);
  }
  End(all);
  fflush(stdout);
}

int Main(int argc, char** argv) {
  Sequence all;
  if (!Begin(argv, &all.run)) return 1;
  const auto seed = static_cast<uint32_t>(strtoul(argv[4], nullptr, 10));
  const auto count = static_cast<uint32_t>(strtoul(argv[5], nullptr, 10));
  const auto first_port = static_cast<uint32_t>(strtoul(argv[6], nullptr, 10));
  std::set<uint32_t> only;
  for (char* at = argc > 7 ? argv[7] : nullptr; at != nullptr && *at != 0;) {
    only.insert(static_cast<uint32_t>(strtoul(at, &at, 10)));
    at += *at == ',';
  }
  for (uint32_t i = 0; i < count; ++i) {
    printf("-- seed %u\n", seed + i);
    all.first_port = static_cast<int>(10'000 + (first_port + kPortsOfASequence * i) % 22'000);
    Make(all, seed + i, only);
  }
  puts("done");
  return 0;
}

}  // namespace
}  // namespace xtreme::faces

int main(int argc, char** argv) { return argc >= 7 ? xtreme::faces::Main(argc, argv) : 2; }
