// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/instruction.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace xtreme::benchmarks {
namespace {

// What an assembler makes of the line in `name`, and what is to be seen in it. Registers hold
// 0x1000 * (their number + 1).
struct Line {
  std::string name;
  std::vector<uint8_t> bytes;
  uint64_t address;  // Of the operand; 0: none.
  uint32_t length;
  bool locked = false;
  uint64_t implied = 0;
};

class Decoded : public testing::TestWithParam<Line> {};

TEST_P(Decoded, TouchesWhatTheCpuWould) {
  const Line& line = GetParam();
  std::vector<uint8_t> code = line.bytes;
  code.resize(32, 0x90);
  Registers registers;
  for (size_t i = 0; i < 16; ++i) registers.general[i] = 0x1000 * (i + 1);
  registers.fs_base = 0x7'0000'0000;
  const Instruction instruction = Decode(code.data(), registers);
  EXPECT_TRUE(instruction.known);
  EXPECT_EQ(instruction.operand.bytes, line.length);
  if (line.length != 0) {
    EXPECT_EQ(instruction.operand.address, line.address);
  }
  EXPECT_EQ(instruction.locked, line.locked);
  EXPECT_EQ(instruction.implied.bytes == 0 ? 0 : instruction.implied.address, line.implied);
}

const std::vector<Line> kLines = {
    {"mov eax, [rdi]", {0x8b, 0x07}, 0x8000, 4},
    {"mov rax, [rdi+8]", {0x48, 0x8b, 0x47, 0x08}, 0x8008, 8},
    {"mov [r8+rcx*8-8], rax", {0x49, 0x89, 0x44, 0xc8, 0xf8}, 0x9000 + 0x2000 * 8 - 8, 8},
    {"mov byte [rsp+0x100], 1", {0xc6, 0x84, 0x24, 0, 1, 0, 0, 1}, 0x5100, 1},
    {"mov ax, [rbx]", {0x66, 0x8b, 0x03}, 0x4000, 2},
    {"mov eax, fs:[rax]", {0x64, 0x8b, 0x00}, 0x7'0000'1000, 4},
    {"movzx eax, byte [r12]", {0x41, 0x0f, 0xb6, 0x04, 0x24}, 0xd000, 1},
    {"movbe eax, [rdi]", {0x0f, 0x38, 0xf0, 0x07}, 0x8000, 4},
    {"lea rax, [rdi+8]", {0x48, 0x8d, 0x47, 0x08}, 0, 0},
    {"nop [rax]", {0x0f, 0x1f, 0x00}, 0, 0},
    {"mov eax, ecx", {0x89, 0xc8}, 0, 0},
    {"jmp short", {0xeb, 0x10}, 0, 0},
    {"je near", {0x0f, 0x84, 0, 1, 0, 0}, 0, 0},
    {"prefetcht0 [rdi]", {0x0f, 0x18, 0x0f}, 0x8000, 1},
    {"lock inc dword [rdi]", {0xf0, 0xff, 0x07}, 0x8000, 4, true},
    {"lock cmpxchg [rdi], ecx", {0xf0, 0x0f, 0xb1, 0x0f}, 0x8000, 4, true},
    {"xchg [rdi], eax", {0x87, 0x07}, 0x8000, 4, true},
    {"xchg eax, ecx", {0x87, 0xc1}, 0, 0, false},
    {"push rbx", {0x53}, 0, 0, false, 0x5000 - 8},
    {"ret", {0xc3}, 0, 0, false, 0x5000},
    {"call near", {0xe8, 0, 0, 0, 0}, 0, 0, false, 0x5000 - 8},
    {"call [rax+0x10]", {0xff, 0x50, 0x10}, 0x1010, 8, false, 0x5000 - 8},
    {"vmovdqu ymm0, [rsi]", {0xc5, 0xfe, 0x6f, 0x06}, 0x7000, 32},
    {"vmovdqu [r9], xmm0", {0xc4, 0xc1, 0x7a, 0x7f, 0x01}, 0xa000, 16},
    {"vmovd xmm0, [rdi]", {0xc5, 0xf9, 0x6e, 0x07}, 0x8000, 4},
    {"vmovq [rdi], xmm0", {0xc5, 0xf9, 0xd6, 0x07}, 0x8000, 8},
    {"movups [rdi], xmm0", {0x0f, 0x11, 0x07}, 0x8000, 16},
    {"stosq", {0x48, 0xab}, 0, 0, false, 0x8000},
    {"movsb", {0xa4}, 0x7000, 1, false, 0x8000},
};

INSTANTIATE_TEST_SUITE_P(Lines, Decoded, testing::ValuesIn(kLines), [](const auto& line) {
  std::string name = std::to_string(line.index) + "_" + line.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(Instruction, RipRelativeAddressCountsFromTheEndOfTheInstruction) {
  // mov dword [rip+0x20], 1: ten bytes.
  const std::vector<uint8_t> code = {0xc7, 0x05, 0x20, 0, 0, 0, 1, 0, 0, 0,
                                     0x90, 0x90, 0x90, 0x90, 0x90, 0x90};
  const Instruction instruction = Decode(code.data(), {});
  EXPECT_EQ(instruction.operand.address, reinterpret_cast<uintptr_t>(code.data()) + 10 + 0x20);
  EXPECT_EQ(instruction.operand.bytes, 4u);
}

TEST(Instruction, SystemCallIsSeen) {
  const std::vector<uint8_t> code(16, 0x05);
  std::vector<uint8_t> syscall = code;
  syscall[0] = 0x0f;
  EXPECT_TRUE(Decode(syscall.data(), {}).system_call);
  EXPECT_FALSE(Decode(code.data(), {}).system_call);
}

TEST(Instruction, SaysThatItDoesNotKnowEvex) {
  const std::vector<uint8_t> code(16, 0x62);
  EXPECT_FALSE(Decode(code.data(), {}).known);
}

}  // namespace
}  // namespace xtreme::benchmarks
