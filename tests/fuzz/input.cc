// SPDX-License-Identifier: Apache-2.0
//
// Mutations chosen for packet formats: boundary bytes, wrong lengths, swapped halves, cut tails.
#include "tests/fuzz/input.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

namespace xtreme::fuzz {
namespace {

using Engine = std::mt19937_64;

// Values at which length and flag fields change meaning.
constexpr std::array<uint8_t, 10> kBoundaries = {0, 1, 4, 5, 0x0F, 0x45, 0x7F, 0x80, 0xFE, 0xFF};

// The modulo's bias does not matter here, and unlike a distribution it is the same everywhere.
size_t Below(Engine& engine, size_t bound) { return bound == 0 ? 0 : engine() % bound; }

Bytes RandomBytes(Engine& engine, size_t length) {
  Bytes bytes(length);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(engine());
  return bytes;
}

void FlipBit(Engine& engine, Bytes& input) {
  input[Below(engine, input.size())] ^= static_cast<uint8_t>(1u << Below(engine, 8));
}

void SetBoundary(Engine& engine, Bytes& input) {
  input[Below(engine, input.size())] = kBoundaries[Below(engine, kBoundaries.size())];
}

void SetRandom(Engine& engine, Bytes& input) {
  input[Below(engine, input.size())] = static_cast<uint8_t>(engine());
}

void Truncate(Engine& engine, Bytes& input) { input.resize(Below(engine, input.size() + 1)); }

void Erase(Engine& engine, Bytes& input) {
  const size_t begin = Below(engine, input.size());
  const size_t count = 1 + Below(engine, std::min<size_t>(8, input.size() - begin));
  input.erase(input.begin() + begin, input.begin() + begin + count);
}

void Insert(Engine& engine, Bytes& input) {
  const Bytes bytes = RandomBytes(engine, 1 + Below(engine, 8));
  input.insert(input.begin() + Below(engine, input.size() + 1), bytes.begin(), bytes.end());
}

void RepeatBlock(Engine& engine, Bytes& input) {
  const size_t begin = Below(engine, input.size());
  const size_t count = 1 + Below(engine, std::min<size_t>(64, input.size() - begin));
  const Bytes block(input.begin() + begin, input.begin() + begin + count);
  input.insert(input.begin() + Below(engine, input.size() + 1), block.begin(), block.end());
}

constexpr std::array kMutations = {FlipBit, SetBoundary, SetRandom,  Truncate,
                                   Erase,   Insert,      RepeatBlock};

// The head of `input` and the tail of `other`.
void Splice(Engine& engine, const Bytes& other, Bytes& input) {
  input.resize(Below(engine, input.size() + 1));
  input.insert(input.end(), other.begin() + Below(engine, other.size() + 1), other.end());
}

}  // namespace

Inputs::Inputs(std::vector<Bytes> seeds, uint64_t seed, size_t max_bytes)
    : seeds_(std::move(seeds)), seed_(seed), max_bytes_(max_bytes) {
  for (Bytes& bytes : seeds_) bytes.resize(std::min(bytes.size(), max_bytes_));
}

Bytes Inputs::At(uint64_t index) const {
  if (index < seeds_.size()) return seeds_[index];
  // Both words go through one seed_seq, so that neighbouring indices share nothing.
  std::seed_seq sequence{static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32),
                         static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32)};
  std::array<uint32_t, 2> words;
  sequence.generate(words.begin(), words.end());
  Engine engine(uint64_t{words[0]} << 32 | words[1]);

  // One in eight is random from the first byte, which reaches the early refusals.
  if (seeds_.empty() || Below(engine, 8) == 0) {
    // Squaring favours short inputs: most parsers refuse or accept within the first 100 bytes.
    const size_t length = Below(engine, 1 + Below(engine, max_bytes_ + 1));
    return RandomBytes(engine, length);
  }
  Bytes input = seeds_[Below(engine, seeds_.size())];
  if (Below(engine, 8) == 0) Splice(engine, seeds_[Below(engine, seeds_.size())], input);
  const size_t mutations = 1 + Below(engine, 6);
  for (size_t i = 0; i < mutations && !input.empty(); ++i) {
    kMutations[Below(engine, kMutations.size())](engine, input);
  }
  input.resize(std::min(input.size(), max_bytes_));
  return input;
}

}  // namespace xtreme::fuzz
