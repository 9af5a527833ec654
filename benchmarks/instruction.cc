// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/instruction.h"

#include <cstring>

namespace xtreme::benchmarks {
namespace {

constexpr int kRsp = 4, kRsi = 6, kRdi = 7;

enum class Map : uint8_t { kOneByte, k0F, k0F38, k0F3A };

// Prefixes and opcode, and where ModRM stands.
struct Opcode {
  const uint8_t* start = nullptr;
  const uint8_t* modrm = nullptr;
  Map map = Map::kOneByte;
  uint8_t byte = 0;
  bool lock = false, size16 = false, repeat = false, repeat_not = false, fs = false;
  bool vector = false;    // VEX.
  bool vector256 = false;
  bool wide = false;      // REX.W or VEX.W.
  uint8_t reg_x = 0, reg_b = 0;
  bool known = true;

  uint32_t general_bytes() const { return wide ? 8 : size16 ? 2 : 4; }
};

void TakeVexPrefixes(uint8_t pp, Opcode* opcode) {
  opcode->size16 = pp == 1;
  opcode->repeat = pp == 2;
  opcode->repeat_not = pp == 3;
}

const uint8_t* TakeVex(const uint8_t* at, Opcode* opcode) {
  opcode->vector = true;
  opcode->map = Map::k0F;
  uint8_t last = at[1];
  if (*at == 0xc4) {
    opcode->reg_x = (at[1] & 0x40) ? 0 : 8;
    opcode->reg_b = (at[1] & 0x20) ? 0 : 8;
    opcode->map = static_cast<Map>(at[1] & 3);
    last = at[2];
    opcode->wide = last & 0x80;
    ++at;
  }
  opcode->vector256 = last & 4;
  TakeVexPrefixes(last & 3, opcode);
  return at + 2;
}

const uint8_t* TakeLegacyPrefixes(const uint8_t* at, Opcode* opcode) {
  for (;; ++at) {
    switch (*at) {
      case 0xf0: opcode->lock = true; break;
      case 0x66: opcode->size16 = true; break;
      case 0xf3: opcode->repeat = true; break;
      case 0xf2: opcode->repeat_not = true; break;
      case 0x64: opcode->fs = true; break;
      case 0x2e: case 0x36: case 0x3e: case 0x26: case 0x65: case 0x67: break;
      default: return at;
    }
  }
}

Opcode TakeOpcode(const uint8_t* at) {
  Opcode opcode;
  opcode.start = at;
  at = TakeLegacyPrefixes(at, &opcode);
  if (*at == 0xc4 || *at == 0xc5) {
    at = TakeVex(at, &opcode);
    opcode.byte = *at++;
  } else {
    if ((*at & 0xf0) == 0x40) {
      opcode.wide = *at & 8;
      opcode.reg_x = (*at & 2) ? 8 : 0;
      opcode.reg_b = (*at & 1) ? 8 : 0;
      ++at;
    }
    opcode.byte = *at++;
    if (opcode.byte == 0x62) opcode.known = false;  // EVEX.
    if (opcode.byte == 0x0f) {
      opcode.map = *at == 0x38 ? Map::k0F38 : *at == 0x3a ? Map::k0F3A : Map::k0F;
      if (opcode.map != Map::k0F) ++at;
      opcode.byte = *at++;
    }
  }
  opcode.modrm = at;
  return opcode;
}

bool OneByteHasModrm(uint8_t byte) {
  if (byte < 0x40) return (byte & 7) < 4;
  switch (byte) {
    case 0x63: case 0x69: case 0x6b: case 0x8f:
    case 0xc0: case 0xc1: case 0xc6: case 0xc7:
    case 0xf6: case 0xf7: case 0xfe: case 0xff:
      return true;
    default:
      return (byte >= 0x80 && byte <= 0x8e) || (byte >= 0xd0 && byte <= 0xdf && byte != 0xd4);
  }
}

bool HasModrm(const Opcode& opcode) {
  if (opcode.map == Map::kOneByte) return OneByteHasModrm(opcode.byte);
  if (opcode.map != Map::k0F) return true;
  const uint8_t byte = opcode.byte;
  if (byte >= 0x80 && byte <= 0x8f) return false;  // Jcc.
  if (byte >= 0xc8 && byte <= 0xcf) return false;  // BSWAP.
  switch (byte) {
    case 0x05: case 0x0b: case 0x30: case 0x31: case 0x34: case 0x77: case 0xa2:
      return false;
    default:
      return true;
  }
}

// Immediate bytes behind the operand: a RIP-relative address counts from the instruction's end.
uint32_t ImmediateBytes(const Opcode& opcode) {
  const uint32_t word = opcode.size16 ? 2 : 4;
  const uint8_t byte = opcode.byte;
  if (opcode.map == Map::k0F3A) return 1;
  if (opcode.map == Map::k0F38) return 0;
  if (opcode.map == Map::k0F) {
    const bool one = (byte >= 0x70 && byte <= 0x73) || byte == 0xa4 || byte == 0xac ||
                     byte == 0xba || byte == 0xc2 || (byte >= 0xc4 && byte <= 0xc6);
    return one ? 1 : 0;
  }
  const bool test = ((*opcode.modrm >> 3) & 7) < 2;
  switch (byte) {
    case 0x80: case 0x83: case 0x6b: case 0xc0: case 0xc1: case 0xc6: return 1;
    case 0x81: case 0x69: case 0xc7: return word;
    case 0xf6: return test ? 1 : 0;
    case 0xf7: return test ? word : 0;
    default: return 0;
  }
}

int32_t LoadDisplacement(const uint8_t* at, uint32_t bytes) {
  if (bytes == 0) return 0;
  if (bytes == 1) return static_cast<int8_t>(*at);
  int32_t displacement;
  std::memcpy(&displacement, at, sizeof(displacement));
  return displacement;
}

// The address of a memory operand.
uint64_t Address(const Opcode& opcode, const Registers& registers) {
  const uint8_t mod = *opcode.modrm >> 6;
  const uint8_t rm = *opcode.modrm & 7;
  const uint8_t* at = opcode.modrm + 1;
  uint32_t displacement_bytes = mod == 1 ? 1 : mod == 2 ? 4 : 0;
  uint64_t address = opcode.fs ? registers.fs_base : 0;
  if (rm == 5 && mod == 0) {
    const uint8_t* end = at + 4 + ImmediateBytes(opcode);
    return address + reinterpret_cast<uintptr_t>(end) +
           static_cast<uint64_t>(int64_t{LoadDisplacement(at, 4)});
  }
  if (rm == 4) {
    const uint8_t sib = *at++;
    const int index = (sib >> 3 & 7) | opcode.reg_x;
    const int base = sib & 7;
    if (index != kRsp) address += registers.general[index] << (sib >> 6);
    if (base == 5 && mod == 0) {
      displacement_bytes = 4;
    } else {
      address += registers.general[base | opcode.reg_b];
    }
  } else {
    address += registers.general[rm | opcode.reg_b];
  }
  return address + static_cast<uint64_t>(int64_t{LoadDisplacement(at, displacement_bytes)});
}

uint32_t OneByteOperandBytes(const Opcode& opcode) {
  const uint8_t byte = opcode.byte;
  const uint8_t extension = *opcode.modrm >> 3 & 7;
  if (byte == 0x8d) return 0;  // LEA.
  if (byte == 0x63) return 4;
  if (byte == 0xff && extension >= 2) return 8;
  const bool wide_only = byte == 0x69 || byte == 0x6b;
  return (byte & 1) == 0 && !wide_only ? 1 : opcode.general_bytes();
}

uint32_t VectorOperandBytes(const Opcode& opcode) {
  if (opcode.vector256) return 32;
  const uint8_t byte = opcode.byte;
  if (opcode.map == Map::k0F && (byte == 0x6e || (byte == 0x7e && !opcode.repeat))) {
    return opcode.wide ? 8 : 4;
  }
  if (opcode.map == Map::k0F && (byte == 0x7e || byte == 0xd6)) return 8;
  if (opcode.map == Map::k0F && (byte == 0x12 || byte == 0x13 || byte == 0x16 || byte == 0x17)) {
    return 8;
  }
  if (opcode.map == Map::k0F38 && byte >= 0xf0) return opcode.general_bytes();  // BMI.
  if (opcode.map == Map::k0F38 && byte == 0x59) return 8;                       // Broadcast.
  if (opcode.repeat_not) return 8;
  if (opcode.repeat && byte != 0x6f && byte != 0x7f) return 4;
  return 16;
}

uint32_t TwoByteOperandBytes(const Opcode& opcode) {
  const uint8_t byte = opcode.byte;
  if (byte == 0x1f || byte == 0x1e) return 0;  // NOP.
  if (byte == 0x18 || byte == 0x0d) return 1;  // Prefetch: it brings the line.
  if (byte == 0xb6 || byte == 0xbe || (byte >= 0x90 && byte <= 0x9f)) return 1;
  if (byte == 0xb7 || byte == 0xbf) return 2;
  const bool general = (byte >= 0x40 && byte <= 0x4f) || (byte >= 0xa0 && byte <= 0xc1) ||
                       byte == 0xc3 || byte == 0xc7;
  return general ? opcode.general_bytes() : VectorOperandBytes(opcode);
}

uint32_t OperandBytes(const Opcode& opcode) {
  if (opcode.vector || opcode.map == Map::k0F3A) return VectorOperandBytes(opcode);
  if (opcode.map == Map::kOneByte) return OneByteOperandBytes(opcode);
  if (opcode.map == Map::k0F38) {
    return opcode.byte >= 0xf0 ? opcode.general_bytes() : VectorOperandBytes(opcode);
  }
  return TwoByteOperandBytes(opcode);
}

// What is touched without being named: the stack, and the ends of a string instruction.
void AddImplied(const Opcode& opcode, const Registers& registers, Instruction* instruction) {
  if (opcode.map != Map::kOneByte || opcode.vector) return;
  const uint64_t stack = registers.general[kRsp];
  const uint8_t byte = opcode.byte;
  const uint8_t extension = *opcode.modrm >> 3 & 7;
  const bool pushes = (byte & 0xf8) == 0x50 || byte == 0x68 || byte == 0x6a || byte == 0xe8 ||
                      byte == 0x9c || (byte == 0xff && (extension == 2 || extension == 6));
  const bool pops = (byte & 0xf8) == 0x58 || byte == 0xc3 || byte == 0xc9 || byte == 0x9d;
  if (pushes) instruction->implied = {stack - 8, 8};
  if (pops) instruction->implied = {stack, 8};
  const uint32_t unit = (byte & 1) == 0 ? 1 : opcode.general_bytes();
  if (byte == 0xa4 || byte == 0xa5) instruction->operand = {registers.general[kRsi], unit};
  if (byte == 0xa4 || byte == 0xa5 || byte == 0xaa || byte == 0xab) {
    instruction->implied = {registers.general[kRdi], unit};
  }
}

}  // namespace

Instruction Decode(const uint8_t* code, const Registers& registers) {
  const Opcode opcode = TakeOpcode(code);
  Instruction instruction{.locked = opcode.lock, .known = opcode.known};
  if (!opcode.known) return instruction;
  instruction.system_call = opcode.map == Map::k0F && !opcode.vector && opcode.byte == 0x05;
  if (HasModrm(opcode) && *opcode.modrm >> 6 != 3) {
    instruction.operand = {Address(opcode, registers), OperandBytes(opcode)};
    const bool exchange =
        opcode.map == Map::kOneByte && (opcode.byte == 0x86 || opcode.byte == 0x87);
    instruction.locked |= exchange && !opcode.vector;
  }
  AddImplied(opcode, registers, &instruction);
  return instruction;
}

}  // namespace xtreme::benchmarks
