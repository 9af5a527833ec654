// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/ioctl.h"

#include <rdma/ib_user_ioctl_cmds.h>

namespace xtreme::connectx {

std::optional<VerbsCall> VerbsCall::Parse(std::span<std::byte> buffer) {
  ib_uverbs_ioctl_hdr header;
  if (buffer.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, buffer.data(), sizeof(header));
  const size_t claimed = sizeof(header) + size_t{header.num_attrs} * sizeof(ib_uverbs_attr);
  if (header.length != claimed || claimed > buffer.size()) return std::nullopt;
  return VerbsCall(header, buffer.subspan(sizeof(header), claimed - sizeof(header)));
}

std::optional<VerbsCall> VerbsCall::ParseArgument(void* argument) {
  if (argument == nullptr) return std::nullopt;
  ib_uverbs_ioctl_hdr header;
  std::memcpy(&header, argument, sizeof(header));
  return Parse({static_cast<std::byte*>(argument), header.length});
}

ib_uverbs_attr* VerbsCall::Find(uint16_t attribute) const {
  for (size_t at = 0; at < attributes_.size(); at += sizeof(ib_uverbs_attr)) {
    auto* candidate = reinterpret_cast<ib_uverbs_attr*>(attributes_.data() + at);
    if (candidate->attr_id == attribute) return candidate;
  }
  return nullptr;
}

std::span<const std::byte> VerbsCall::Input(uint16_t attribute) const {
  const ib_uverbs_attr* found = Find(attribute);
  if (found == nullptr) return {};
  // Up to eight bytes stand in the attribute itself.
  if (found->len <= sizeof(found->data)) {
    return {reinterpret_cast<const std::byte*>(&found->data), found->len};
  }
  if (found->data == 0) return {};
  return {reinterpret_cast<const std::byte*>(found->data), found->len};
}

std::span<std::byte> VerbsCall::Output(uint16_t attribute) const {
  const ib_uverbs_attr* found = Find(attribute);
  if (found == nullptr || found->data == 0) return {};
  return {reinterpret_cast<std::byte*>(found->data), found->len};
}

std::optional<uint32_t> VerbsCall::Handle(uint16_t attribute) const {
  const ib_uverbs_attr* found = Find(attribute);
  if (found == nullptr) return std::nullopt;
  return static_cast<uint32_t>(found->data);
}

void VerbsCall::AnswerBytes(uint16_t attribute, std::span<const std::byte> bytes) const {
  const std::span<std::byte> room = Output(attribute);
  if (room.empty()) return;
  std::memcpy(room.data(), bytes.data(), std::min(room.size(), bytes.size()));
  // What the kernel does not know it leaves zero (uverbs_copy_to_struct_or_zero).
  if (room.size() > bytes.size()) {
    std::memset(room.data() + bytes.size(), 0, room.size() - bytes.size());
  }
  Find(attribute)->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
}

void VerbsCall::AnswerHandle(uint16_t attribute, uint32_t handle) const {
  ib_uverbs_attr* found = Find(attribute);
  if (found == nullptr) return;
  found->data = handle;
  found->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
}

}  // namespace xtreme::connectx
