// SPDX-License-Identifier: Apache-2.0
//
// Commands to the firmware that belong to no object: of its capabilities, those of the flow tables
// that receive.
//
// What else a firmware tells is not made up: a group of capabilities that is not here is a bad
// parameter, as of an older firmware. Offsets in bytes, fields big endian.
// Spec: mlx5dv_devx_general_cmd(3); PRM, "QUERY_HCA_CAP", "Flow Table Capabilities"; the kernel's
// drivers/infiniband/hw/mlx5/devx.c says who may ask, and what is refused.

#include <endian.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>

#include "tools/connectx/uverbs/context.h"

namespace xtreme::connectx {
namespace {

constexpr size_t kHeadBytes = 16;  // Of a command and of its answer.
constexpr size_t kOperationModeAt = 6;
constexpr size_t kCapabilityBytes = 4'096;
constexpr uint16_t kQueryHcaCap = 0x100;
// Of the operation's mode, above the bit that asks for what is in force and not for the most.
constexpr uint16_t kFlowTables = 0x7;
constexpr std::byte kBadParameter{0x3};
constexpr std::byte kSupported{0x80};
// The receive side's tables: whether there are any; of how many rules, as log2.
constexpr size_t kReceiveTablesAt = kHeadBytes + 0x200 / 8;
constexpr size_t kLogMaxFlowAt = kReceiveTablesAt + 0xB8 / 8;

uint16_t LoadBe16(std::span<const std::byte> bytes, size_t at) {
  uint16_t value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return be16toh(value);
}

}  // namespace

int RunGeneralCommand(Context& context, const VerbsCall& call) {
  const std::span<const std::byte> command = call.Input(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN);
  const size_t room = call.Output(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT).size();
  if (!context.devx || command.size() < kHeadBytes || room < kHeadBytes) return EINVAL;
  if (LoadBe16(command, 0) != kQueryHcaCap) return EINVAL;
  std::array<std::byte, kHeadBytes + kCapabilityBytes> answer{};
  const bool known = LoadBe16(command, kOperationModeAt) >> 1 == kFlowTables;
  if (known) {
    const uint32_t rules = context.device->options().limits.flow_rules;
    answer[kReceiveTablesAt] = kSupported;
    answer[kLogMaxFlowAt] = static_cast<std::byte>(std::bit_width(rules) - 1);
  } else {
    answer[0] = kBadParameter;
  }
  call.AnswerBytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, answer);
  return known ? 0 : EREMOTEIO;
}

}  // namespace xtreme::connectx
