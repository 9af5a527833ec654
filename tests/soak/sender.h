// SPDX-License-Identifier: Apache-2.0
//
// Sends by every way that a ring has: copied, from a buffer of the ring, from memory of the
// program, prepared ahead; and sees to it that each TX_DONE that was asked for comes, once.
//
// A TX_DONE comes to the ring that a stream is on by then, so it says whose it is.
// Thread: the member's.

#ifndef XTREME_TESTS_SOAK_SENDER_H_
#define XTREME_TESTS_SOAK_SENDER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/xtreme.hpp"
#include "tests/soak/board.h"

namespace xtreme::soak {

class Sender {
 public:
  static constexpr uint32_t kSlotBytes = 8 << 10;
  static constexpr uint32_t kSlots = 16;

  // Of the ring number `at`, which outlives it. OP_DONE with kRegistered tells of its memory.
  Sender(Ring* ring, int at);
  static constexpr uint64_t kRegistered = 77;

  // All or nothing; at most kSlotBytes. `peer` null: where the socket is connected. Nothing: the
  // way that the dice chose has no room now.
  std::optional<int> Send(xtreme_socket socket, const xtreme_address* peer, bool datagram,
                          std::span<const uint8_t> bytes, Dice* dice);

  // Whose TX_DONE it is: the number of a ring.
  static int OwnerOf(uint64_t cookie) { return static_cast<int>(cookie >> 32 & 0xff) - 1; }
  // Empty, or what is wrong with it.
  std::string OnDone(uint64_t cookie, int status);

  uint64_t due() const { return due_; }
  // Datagrams that may not have left.
  uint64_t cancelled() const { return cancelled_; }
  // Gives the memory back, which `freed` then says.
  void GiveBack() { memory_buffer_.Release(); }
  bool freed() const { return freed_; }

 private:
  static constexpr uint64_t kDatagram = uint64_t{1} << 40;

  int SendFromPool(xtreme_socket socket, const xtreme_address* peer,
                   std::span<const uint8_t> bytes, const xtreme_send_options& options);
  int SendFromMemory(xtreme_socket socket, const xtreme_address* peer,
                     std::span<const uint8_t> bytes, xtreme_send_options options);
  static int SendPrepared(xtreme_socket socket, std::span<const uint8_t> bytes,
                          const xtreme_send_options& options);

  Ring* const ring_;
  const int at_;
  std::vector<uint8_t> memory_;
  std::vector<bool> busy_;  // Slots of it, until their TX_DONE.
  Buffer memory_buffer_;
  bool freed_ = false;
  uint64_t due_ = 0;
  uint64_t cancelled_ = 0;
};

}  // namespace xtreme::soak

#endif  // XTREME_TESTS_SOAK_SENDER_H_
