// SPDX-License-Identifier: Apache-2.0
//
// A program that receives messages with control data, several at a time, and by looking ahead, and
// writes down what came beside the bytes: run by the kernel and by rings, its transcripts are to be
// the same.
//
//   messages_subject SOCKET OWN-ADDRESS PEER-ADDRESS
//
// A case is a line of kCases. Threads: one, but for Later().

#include <arpa/inet.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/faces/transcript.h"

namespace xtreme::faces {
namespace {

template <typename Value>
void Set(Run& run, const char* what, int level, int name, const Value& value) {
  Say(what, setsockopt(run.fd, level, name, &value, sizeof value));
}

// --- What comes beside the bytes ---

// Into `room` bytes for control data: how many of them were taken, and of which kinds. There is no
// room for a name, whatever its length says.
void Message(Run& run, const char* what, size_t room = 200) {
  Datagram(run);
  alignas(cmsghdr) char control[200] = {};
  char bytes[100];
  iovec part{.iov_base = bytes, .iov_len = sizeof bytes};
  msghdr message{.msg_namelen = 7,
                 .msg_iov = &part,
                 .msg_iovlen = 1,
                 .msg_control = control,
                 .msg_controllen = room};
  const ssize_t got = recvmsg(run.fd, &message, MSG_DONTWAIT);
  std::string all = "flags " + std::to_string(message.msg_flags) + ", name of " +
                    std::to_string(message.msg_namelen) + ", " +
                    std::to_string(message.msg_controllen) + " bytes:";
  for (const cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, const_cast<cmsghdr*>(each))) {
    all += " " + std::to_string(each->cmsg_type) + " of " + std::to_string(each->cmsg_len);
  }
  Say(what, got, all);
}

// The last that was asked for is given, and none after either was taken back.
void TimesOfArrival(Run& run) {
  const auto set = [&run](const char* what, int name, int value) {
    Set(run, what, SOL_SOCKET, name, value);
    Message(run, "recvmsg");
  };
  Message(run, "recvmsg");
  set("SO_TIMESTAMPNS", SO_TIMESTAMPNS, 1), set("SO_TIMESTAMP", SO_TIMESTAMP, 1);
  set("SO_TIMESTAMPNS", SO_TIMESTAMPNS, 1), set("SO_TIMESTAMP", SO_TIMESTAMP, 0);
  set("SO_TIMESTAMP", SO_TIMESTAMP, 1), set("SO_TIMESTAMPNS", SO_TIMESTAMPNS, 0);
  // Of times that nobody is told of there is no message, nor of none.
  set("SO_TIMESTAMPING", SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE);
  set("SO_TIMESTAMPING", SO_TIMESTAMPING, SOF_TIMESTAMPING_OPT_CMSG);
  set("SO_TIMESTAMPING", SO_TIMESTAMPING, 0);
}

// What has no room is cut.
void LittleRoom(Run& run) {
  Set(run, "SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1);
  for (const size_t room : {0, 15, 16, 20, 31, 32, 33}) Message(run, "recvmsg", room);
  Set(run, "IP_PKTINFO", IPPROTO_IP, IP_PKTINFO, 1);
  for (const size_t room : {20, 31, 32, 47, 48, 59, 60, 63, 64}) Message(run, "recvmsg", room);
}

void NoRoomForAName(Run& run) {
  run.stream ? Bytes(run) : Datagram(run);
  char bytes[100];
  socklen_t length = 7;
  const ssize_t got = recvfrom(run.fd, bytes, sizeof bytes, MSG_DONTWAIT, nullptr, &length);
  Say("recvfrom", got, std::to_string(length));
}

// A length that is less than nothing is none.
void LessThanNoRoomForAName(Run& run) {
  sockaddr_in name{};
  socklen_t length = static_cast<socklen_t>(-1);
  Say("getsockname", getsockname(run.fd, Generic(&name), &length), std::to_string(length));
  Say("getpeername", getpeername(run.fd, Generic(&name), &length), std::to_string(length));
  if (!run.stream) return;
  // It is accepted all the same, and closed.
  Tell(run, "connect"), Settle(run);
  Say("accept", accept(run.listener, Generic(&name), &length), std::to_string(length));
  Settle(run), Tell(run, "receive");
  Say("accept", accept(run.listener, nullptr, nullptr));
}

// What waits is taken with all that belongs to it: where from, what was cut, what was asked for.
void TakeWaiting(Run& run, size_t room) {
  alignas(cmsghdr) char control[200] = {};
  char bytes[100];
  sockaddr_in name{};
  iovec part{.iov_base = bytes, .iov_len = room};
  msghdr message{.msg_name = &name,
                 .msg_namelen = sizeof name,
                 .msg_iov = &part,
                 .msg_iovlen = 1,
                 .msg_control = control,
                 .msg_controllen = sizeof control};
  const ssize_t got = recvmsg(run.fd, &message, MSG_DONTWAIT);
  std::string all = Sum(bytes, got) + ", flags " + std::to_string(message.msg_flags) + ", of " +
                    std::to_string(name.sin_port == run.peer.sin_port) + ":";
  for (const cmsghdr* each = CMSG_FIRSTHDR(&message); got >= 0 && each != nullptr;
       each = CMSG_NXTHDR(&message, const_cast<cmsghdr*>(each))) {
    all += " " + std::to_string(each->cmsg_type);
  }
  Say("recvmsg", got, all);
}

void MessagesThatWait(Run& run) {
  const int on = 1;
  for (int kind = 0; kind < 4; ++kind) {
    if (kind == 1) Set(run, "SO_TIMESTAMPNS", SOL_SOCKET, SO_TIMESTAMPNS, on);
    if (kind == 2) Set(run, "IP_PKTINFO", IPPROTO_IP, IP_PKTINFO, on);
    if (kind == 3) Set(run, "SO_RXQ_OVFL", SOL_SOCKET, SO_RXQ_OVFL, on);
    for (const int size : {5, 40, 60, 7}) Datagram(run, size);
    TakeWaiting(run, 50), TakeWaiting(run, 50), TakeWaiting(run, 50);
    Datagram(run, 9);
    for (int i = 0; i < 3; ++i) TakeWaiting(run, 3);
    Datagram(run, 5), TakeWaiting(run, 0), TakeWaiting(run, 50);
  }
}

// A connection's, of which some is left.
void MessagesOfAConnection(Run& run) {
  const int on = 1;
  for (const bool tells : {false, true}) {
    if (tells) Set(run, "TCP_INQ", IPPROTO_TCP, TCP_INQ, on);
    Bytes(run, 13);
    for (const size_t room : {5, 3, 50, 50}) TakeWaiting(run, room);
    Bytes(run, 13), Bytes(run, 60);
    for (const size_t room : {20, 50, 50}) TakeWaiting(run, room);
  }
  Tell(run, "shutdown"), Settle(run);
  TakeWaiting(run, 50);
}

// --- In parts ---

void SendInParts(Run& run, const char* what, std::vector<iovec> parts, socklen_t name = 0) {
  sockaddr_in to = run.peer;
  const auto count = static_cast<int>(parts.size());
  Say(what, writev(run.fd, parts.data(), count));
  const msghdr message{.msg_name = name == 0 ? nullptr : &to,
                       .msg_namelen = name,
                       .msg_iov = parts.data(),
                       .msg_iovlen = parts.size()};
  Say(what, sendmsg(run.fd, &message, MSG_NOSIGNAL));
  Settle(run), Tell(run, run.stream ? "receive" : "datagrams");
}

// Short ones and long, empty ones, and none at all.
void Parts(Run& run) {
  std::vector<char> most(3'000);
  for (size_t i = 0; i < most.size(); ++i) most[i] = static_cast<char>('a' + i % 26);
  const auto part = [&most](size_t at, size_t size) { return iovec{most.data() + at, size}; };
  for (int again = 0; again < 2; ++again) {
    SendInParts(run, "one", {part(0, 10)});
    SendInParts(run, "three", {part(0, 10), part(500, 1), part(11, 30)});
    SendInParts(run, "an empty one", {part(0, 10), part(3, 0), part(11, 30)});
    SendInParts(run, "one at no address", {part(0, 10), {nullptr, 0}});
    SendInParts(run, "bytes at no address", {part(0, 10), {nullptr, 5}});
    SendInParts(run, "no other bytes", {{nullptr, 5}});
    SendInParts(run, "nothing", {part(0, 0), part(5, 0)});
    SendInParts(run, "none", {});
    SendInParts(run, "all that is put together", {part(0, 1'000), part(0, 48)});
    SendInParts(run, "more", {part(0, 1'000), part(0, 1'400)});
  }
  SendInParts(run, "to whom", {part(0, 10), part(4, 3)}, sizeof(sockaddr_in));
  SendInParts(run, "to less than an address", {part(0, 10), part(4, 3)}, 7);
  SendInParts(run, "to more than one", {part(0, 10), part(4, 3)}, sizeof(sockaddr_storage));
  SendInParts(run, "to too much", {part(0, 10), part(4, 3)}, sizeof(sockaddr_storage) + 1);
  SendInParts(run, "to less than nothing", {part(0, 10)}, static_cast<socklen_t>(-1));
  sockaddr_in to = run.peer;
  Say("sendto", sendto(run.fd, "12345", 5, 0, Generic(&to), sizeof(sockaddr_storage) + 1));
  Say("sendto", sendto(run.fd, "12345", 5, 0, Generic(&to), static_cast<socklen_t>(-1)));
}

void PartsThatAreRead(Run& run) {
  char bytes[2][10];
  for (int again = 0; again < 2; ++again) {
    run.stream ? Bytes(run, 13) : Datagram(run, 13);
    iovec parts[2] = {{bytes[0], 5}, {bytes[1], 6}};
    Say("readv of none", readv(run.fd, parts, 0));
    ssize_t got = readv(run.fd, parts, 2);
    Say("readv", got, Sum(bytes[0], 5) + Sum(bytes[1], 6));
    got = readv(run.fd, parts, 1);
    Say("readv of one", got, Sum(bytes[0], got));
    parts[0].iov_len = 0;
    Say("readv of nothing", readv(run.fd, parts, 1));
  }
}

// --- Several at a time ---

void Several(Run& run, const char* what, int flags, timespec time, bool waited = false) {
  char bytes[3][100];
  iovec parts[3] = {{bytes[0], 100}, {bytes[1], 100}, {bytes[2], 100}};
  mmsghdr messages[3] = {};
  for (int i = 0; i < 3; ++i) messages[i].msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1};
  const timespec before = time;
  const int got = recvmmsg(run.fd, messages, 3, flags, &time);
  const bool whole = time.tv_sec == before.tv_sec && time.tv_nsec == before.tv_nsec;
  // In seconds that were begun.
  const auto left = time.tv_sec + (time.tv_nsec > 0 ? 1 : 0);
  Say(what, got, (whole ? "all is left" : "left ") + std::to_string(waited ? 0 : left));
}

void SeveralInTime(Run& run) {
  Datagram(run), Datagram(run);
  Several(run, "wrong time", MSG_DONTWAIT, {.tv_sec = 0, .tv_nsec = 1'000'000'000});
  Several(run, "time before", MSG_DONTWAIT, {.tv_sec = -1});
  Several(run, "no time", MSG_DONTWAIT, {});
  Several(run, "two minutes", MSG_DONTWAIT, {.tv_sec = 120});
  Several(run, "none", MSG_DONTWAIT, {.tv_sec = 120});
  Blocks(run.fd, true);
  Datagram(run);
  std::thread later = Later(run, "datagram 7");
  Several(run, "time that passes", 0, {.tv_sec = 0, .tv_nsec = 10'000'000});
  later.join();
  Datagram(run), Datagram(run);
  Several(run, "for one", MSG_WAITFORONE, {.tv_sec = 120});
}

// Who asks for errors by messages takes no other by that.
void ErrorOfTheQueue(Run& run) {
  Tell(run, "deaf");
  Say("send", send(run.fd, "12345", 5, 0));
  Settle(run), WaitUntil(run.fd, 0);
  char bytes[10];
  iovec part{.iov_base = bytes, .iov_len = sizeof bytes};
  mmsghdr message{.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
  Say("recvmmsg", recvmmsg(run.fd, &message, 1, MSG_ERRQUEUE | MSG_DONTWAIT, nullptr));
  Say("recvmmsg", recvmmsg(run.fd, &message, 1, MSG_DONTWAIT, nullptr));
  Tell(run, "hearing");
}

// Linux takes 1,024 at once.
void TooManyToSend(Run& run) {
  char byte = 'x';
  iovec part{&byte, 1};
  std::vector<mmsghdr> messages(1'025);
  for (mmsghdr& each : messages) each.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1};
  Blocks(run.fd, true);  // A queue that is full is waited for.
  Say("sendmmsg", sendmmsg(run.fd, messages.data(), 1'025, 0));
}

// Nothing goes behind a message that was sent in part, nor what has no bytes and needs no room.
void SentInPart(Run& run) {
  std::vector<char> most(64 << 20);
  iovec parts[2] = {{most.data(), most.size()}, {most.data(), 0}};
  mmsghdr messages[2] = {};
  for (int i = 0; i < 2; ++i) messages[i].msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1};
  const int sent = sendmmsg(run.fd, messages, 2, MSG_DONTWAIT | MSG_NOSIGNAL);
  Say("sendmmsg", sent, messages[0].msg_len < most.size() ? "in part" : "whole");
}

// --- Looking ahead ---

// As many as are asked for, and they stay.
void PeekAtAll(Run& run) {
  Blocks(run.fd, true);
  Bytes(run, 13);
  std::thread later = Later(run, "send 13");
  Read(run.fd, "peek", MSG_WAITALL | MSG_PEEK, 26);
  later.join();
  Read(run.fd);
  Bytes(run, 13);
  SetReceiveTimeout(run.fd, 100);
  Read(run.fd, "peek, and the time is over", MSG_WAITALL | MSG_PEEK, 26);
  Read(run.fd, "peek at once", MSG_WAITALL | MSG_PEEK | MSG_DONTWAIT, 26);
  Read(run.fd);
  Read(run.fd, "peek at nothing", MSG_WAITALL | MSG_PEEK, 26);
  SetReceiveTimeout(run.fd, 0);
  Bytes(run, 13);
  later = Later(run, "shutdown");
  Read(run.fd, "peek, and the end", MSG_WAITALL | MSG_PEEK, 26);
  later.join();
  Read(run.fd), Read(run.fd, "peek at the end", MSG_WAITALL | MSG_PEEK, 26);
}

void PeekAboveLowWater(Run& run) {
  Blocks(run.fd, true);
  Set(run, "SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 20);
  Bytes(run, 13);
  Read(run.fd, "peek at once", MSG_DONTWAIT | MSG_PEEK);
  Read(run.fd, "peek at fewer", MSG_PEEK, 10);
  std::thread later = Later(run, "send 13");
  Read(run.fd, "peek", MSG_PEEK);
  later.join();
  Read(run.fd);
  later = Later(run, "reset");
  Read(run.fd, "peek", MSG_PEEK);
  later.join();
}

// SO_PEEK_OFF: each look begins where the last one ended, and what is read is behind all of them.
void PeekFromAnOffset(Run& run) {
  const auto say_offset = [&run] {
    int offset = -7;
    socklen_t length = sizeof offset;
    const int result = getsockopt(run.fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &length);
    Say("offset", result, std::to_string(offset));
  };
  const auto set = [&run](int offset) {
    Set(run, "SO_PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF, offset);
  };
  const auto peek = [&run](size_t size, int flags = MSG_DONTWAIT) {
    Read(run.fd, "peek", MSG_PEEK | flags, size);
  };
  say_offset(), set(0), peek(5), Bytes(run, 13), Bytes(run, 7);
  peek(5), peek(10), say_offset(), peek(100), peek(100), say_offset();
  Read(run.fd, "recv", MSG_DONTWAIT, 3), say_offset(), peek(1);
  Bytes(run, 9), peek(5), Read(run.fd, "recv", MSG_DONTWAIT, 25), say_offset(), peek(3);
  set(2), peek(1), set(-1), peek(2), peek(2), say_offset(), Read(run.fd), say_offset();
  // Who waits, waits for what is behind it.
  Blocks(run.fd, true), Bytes(run, 13), set(13);
  std::thread later = Later(run, "send 13");
  peek(4, 0);
  later.join();
  Settle(run);
  later = Later(run, "send 13");
  peek(20, MSG_WAITALL);
  later.join();
  SetReceiveTimeout(run.fd, 50), set(100), peek(1, 0), say_offset(), set(30);
  Tell(run, "shutdown"), Settle(run), peek(100, 0), peek(1, 0), Read(run.fd), say_offset();
  peek(1, 0);
}

// --- The table ---

constexpr Case kCases[] = {
    {"times of arrival", false, TimesOfArrival},
    {"little room", false, LittleRoom},
    {"no room for a name", false, NoRoomForAName},
    {"no room for a connection's name", kConnection, NoRoomForAName},
    {"less than no room for a name", false, LessThanNoRoomForAName},
    {"less than no room for a connection's name", kConnection, LessThanNoRoomForAName},
    {"messages that wait", false, MessagesThatWait},
    {"messages of a connection", kConnection, MessagesOfAConnection},
    {"parts", false, Parts},
    {"parts of a connection", kConnection, Parts},
    {"parts that are read", false, PartsThatAreRead},
    {"parts of a connection that are read", kConnection, PartsThatAreRead},
    {"several in time", false, SeveralInTime},
    {"error of the queue", false, ErrorOfTheQueue},
    {"too many to send", false, TooManyToSend},
    {"sent in part", kConnection, SentInPart},
    {"peek at all", kConnection, PeekAtAll},
    {"peek above low water", kConnection, PeekAboveLowWater},
    {"peek from an offset", kConnection, PeekFromAnOffset},
};

}  // namespace
}  // namespace xtreme::faces

int main(int argc, char** argv) {
  return xtreme::faces::RunProgram(argc, argv, xtreme::faces::kCases);
}
