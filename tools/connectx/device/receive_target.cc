// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/receive_target.h"

#include <infiniband/verbs.h>

#include <cstring>

#include "tools/connectx/device/layout.h"

namespace xtreme::connectx {
namespace {

constexpr size_t kMaxHashInputBytes = 36;  // Two IPv6 addresses and two ports.

struct HashInput {
  std::array<uint8_t, kMaxHashInputBytes> bytes;
  size_t length = 0;

  void Append(const uint8_t* from, size_t count) {
    std::memcpy(bytes.data() + length, from, count);
    length += count;
  }

  // Source and destination stand together at `from`, each of `count` bytes. Of both: what they are
  // together and what they differ in, which is the same for both directions of a flow.
  void AppendPair(const uint8_t* from, size_t count, bool source, bool destination) {
    if (!source || !destination) {
      if (source) Append(from, count);
      if (destination) Append(from + count, count);
      return;
    }
    for (size_t i = 0; i < count; ++i) {
      bytes[length + i] = from[i] | from[count + i];
      bytes[length + count + i] = from[i] ^ from[count + i];
    }
    length += 2 * count;
  }
};

void AppendAddresses(const Frame& frame, uint64_t fields, HashInput* input) {
  const uint8_t* header = frame.bytes.data() + frame.l3_offset;
  if (frame.l3 == Frame::L3::kIpv4) {
    input->AppendPair(header + 12, 4, (fields & IBV_RX_HASH_SRC_IPV4) != 0,
                      (fields & IBV_RX_HASH_DST_IPV4) != 0);
  } else if (frame.l3 == Frame::L3::kIpv6) {
    input->AppendPair(header + 8, 16, (fields & IBV_RX_HASH_SRC_IPV6) != 0,
                      (fields & IBV_RX_HASH_DST_IPV6) != 0);
  }
}

void AppendPorts(const Frame& frame, uint64_t fields, HashInput* input) {
  if (frame.l4 == Frame::L4::kNone) return;
  const bool tcp = frame.l4 == Frame::L4::kTcp;
  const uint64_t source = tcp ? IBV_RX_HASH_SRC_PORT_TCP : IBV_RX_HASH_SRC_PORT_UDP;
  const uint64_t destination = tcp ? IBV_RX_HASH_DST_PORT_TCP : IBV_RX_HASH_DST_PORT_UDP;
  const uint8_t* header = frame.bytes.data() + frame.l4_offset;
  input->AppendPair(header, 2, (fields & source) != 0, (fields & destination) != 0);
}

}  // namespace

uint32_t ToeplitzHash(const std::array<uint8_t, 40>& key, std::span<const uint8_t> input) {
  uint32_t hash = 0;
  uint32_t window = LoadBe32(key.data());  // The key's 32 bits that start at the input's bit.
  for (size_t i = 0; i < input.size(); ++i) {
    for (int bit = 7; bit >= 0; --bit) {
      if ((input[i] >> bit & 1) != 0) hash ^= window;
      window = window << 1 | (key[i + 4] >> bit & 1);
    }
  }
  return hash;
}

ReceiveTarget::Choice ReceiveTarget::Spread(const Frame& frame) const {
  HashInput input;
  AppendAddresses(frame, fields_, &input);
  AppendPorts(frame, fields_, &input);
  if (input.length == 0) return {queues_[0], 0};
  const uint32_t hash = ToeplitzHash(key_, {input.bytes.data(), input.length});
  return {queues_[hash & (queues_.size() - 1)], hash};
}

}  // namespace xtreme::connectx
