// SPDX-License-Identifier: Apache-2.0
//
// What sequences_subject has in its hands: a few descriptors that are sockets, listeners, copies of
// one another, or nothing, and two epoll sets.
//
// Invariant: what a call does is decided by its own number and the seed alone, and by what the
// calls before it made of the slots; so a sequence is still one if some of its calls are left out.
// Threads: one.

#ifndef XTREME_TESTS_FACES_SEQUENCES_H_
#define XTREME_TESTS_FACES_SEQUENCES_H_

#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <string>

#include "tests/faces/transcript.h"

namespace xtreme::faces {

enum class Kind { kNothing, kStream, kListener, kDatagrams };

struct Slot {
  int fd = -1;
  Kind kind = Kind::kNothing;
  int port = 0;   // That it was bound to; 0: none.
  int theirs = 0; // The number that the peer knows its connection by.
};

struct Sequence {
  static constexpr int kSlots = 5;

  Run run;
  std::array<Slot, kSlots> slots;
  std::array<int, 2> sets{-1, -1};
  int first_port = 0;      // Of the sequence: another one's are others.
  Kind mostly = Kind::kNothing;  // What is opened.
  int ports_taken = 0;
  int streams = 0;         // That the peer was told of.
  std::deque<int> coming;  // Connections that no call accepted yet: their numbers, and
  std::deque<int> ports;   // where to.
};

// Bytes that the calls receive into.
inline char received_bytes[70'000];

inline sockaddr_in PeerAt(const Sequence& all, int port) {
  sockaddr_in address = all.run.peer;
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// The calls on what a slot has, each of which says what came of it (sequence_calls.cc).
void SendSome(Sequence& all, Slot& slot);
void SendSomeTo(Sequence& all, Slot& slot);
void ReceiveSome(Sequence& all, Slot& slot);
void ReceiveMessages(Sequence& all, Slot& slot);
void ReceiveWaiting(Sequence& all, Slot& slot);
void AskOption(Sequence& all, Slot& slot);
void SetOption(Sequence& all, Slot& slot);
void AskName(Sequence& all, Slot& slot);
void AskNumbers(Sequence& all, Slot& slot);
void AskError(Slot& slot);
void ShutDown(Sequence& all, Slot& slot);
void Misuse(Sequence& all, Slot& slot);

}  // namespace xtreme::faces

#endif  // XTREME_TESTS_FACES_SEQUENCES_H_
