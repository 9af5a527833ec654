// SPDX-License-Identifier: Apache-2.0
//
// SipHash-2-4: a keyed hash of short inputs that nobody can predict without the key. J.-P. Aumasson
// and D. J. Bernstein, "SipHash: a fast short-input PRF", 2012. The key comes from a true source of
// randomness, once, outside the stack. Immutable: any thread.
#ifndef XTREME_STACK_TCP_SIP_HASH_H_
#define XTREME_STACK_TCP_SIP_HASH_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace xtreme::tcp {

class SipHash {
 public:
  using Key = std::array<uint64_t, 2>;

  constexpr explicit SipHash(const Key& key) : key_(key) {}

  uint64_t operator()(std::span<const uint8_t> bytes) const {
    State state(key_);
    const uint64_t length = bytes.size();
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data(), 8);
      state.Absorb(word);
    }
    uint64_t last = length << 56;
    for (size_t i = 0; i < bytes.size(); ++i) last |= uint64_t{bytes[i]} << (8 * i);
    return state.Finish(last);
  }

  // Of the sixteen bytes of two words, the least significant first.
  constexpr uint64_t operator()(uint64_t a, uint64_t b) const {
    State state(key_);
    state.Absorb(a);
    state.Absorb(b);
    return state.Finish(uint64_t{16} << 56);
  }
  // Of twenty-four.
  constexpr uint64_t operator()(uint64_t a, uint64_t b, uint64_t c) const {
    State state(key_);
    state.Absorb(a);
    state.Absorb(b);
    state.Absorb(c);
    return state.Finish(uint64_t{24} << 56);
  }

 private:
  struct State {
    constexpr explicit State(const Key& key)
        : v0(key[0] ^ 0x736F6D6570736575),
          v1(key[1] ^ 0x646F72616E646F6D),
          v2(key[0] ^ 0x6C7967656E657261),
          v3(key[1] ^ 0x7465646279746573) {}

    constexpr void Round() {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1;
      v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
    constexpr void Absorb(uint64_t word) {
      v3 ^= word;
      Round();
      Round();
      v0 ^= word;
    }
    constexpr uint64_t Finish(uint64_t last) {
      Absorb(last);
      v2 ^= 0xFF;
      for (int i = 0; i < 4; ++i) Round();
      return v0 ^ v1 ^ v2 ^ v3;
    }

    uint64_t v0, v1, v2, v3;
  };

  Key key_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_SIP_HASH_H_
