// SPDX-License-Identifier: Apache-2.0
//
// One x86-64 instruction, decoded as far as figures need: does it lock, does it enter the kernel,
// which memory does it touch.
//
// Knows what compilers emit up to AVX2 and BMI; says so of what it does not know. Pure.
// Units: bytes. Spec: AMD64 Architecture Programmer's Manual, volume 3, "Instruction Encoding".

#ifndef XTREME_BENCHMARKS_INSTRUCTION_H_
#define XTREME_BENCHMARKS_INSTRUCTION_H_

#include <array>
#include <cstdint>

namespace xtreme::benchmarks {

// The general registers before the instruction runs, numbered as ModRM and REX number them.
struct Registers {
  std::array<uint64_t, 16> general{};
  uint64_t fs_base = 0;
};

struct Touch {
  uint64_t address = 0;
  uint32_t bytes = 0;  // 0: none.
};

struct Instruction {
  bool locked = false;       // LOCK prefix, or xchg with memory, which locks by itself.
  bool system_call = false;
  bool known = true;         // False: its memory is not told.
  Touch operand;             // By ModRM, or a string instruction's source.
  Touch implied;             // The stack's, or a string instruction's destination.
};

// Decodes the instruction at `code`, of which 16 bytes are readable.
Instruction Decode(const uint8_t* code, const Registers& registers);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_INSTRUCTION_H_
