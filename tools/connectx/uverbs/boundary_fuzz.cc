// SPDX-License-Identifier: Apache-2.0
//
// Fuzzes what the boundary decodes from a caller's bytes: the ioctl's layout and the specifications
// of a flow rule. Payload pointers are not followed: they are the caller's own addresses.

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tools/connectx/uverbs/flow_specs.h"
#include "tools/connectx/uverbs/ioctl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  using xtreme::connectx::FlowRequest;
  using xtreme::connectx::VerbsCall;
  // Aligned as a caller's structure is, and no longer than the input.
  std::vector<uint64_t> words((length + 7) / 8);
  if (length != 0) std::memcpy(words.data(), bytes, length);
  const auto buffer = std::as_writable_bytes(std::span(words)).first(length);
  if (const auto call = VerbsCall::Parse(buffer)) {
    for (uint16_t attribute = 0; attribute < 16; ++attribute) {
      call->Has(attribute);
      call->Handle(attribute);
      call->AnswerHandle(attribute, attribute);
    }
  }
  if (length == 0) return 0;
  FlowRequest request;
  xtreme::connectx::ParseFlowSpecs(std::as_bytes(std::span(bytes + 1, length - 1)), bytes[0],
                                   &request);
  return 0;
}
