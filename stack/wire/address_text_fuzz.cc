// SPDX-License-Identifier: Apache-2.0
//
// Whatever text parses is, written again, the same address.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "stack/wire/address_text.h"

namespace xtreme::wire {
namespace {

template <typename Parser>
void Try(Parser parse, std::string_view text) {
  const auto address = parse(text);
  if (!address.ok()) return;
  const auto again = parse(ToString(*address));
  if (!again.ok() || !(*again == *address)) std::abort();
}

}  // namespace
}  // namespace xtreme::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), length);
  xtreme::wire::Try(xtreme::wire::ParseMacAddress, text);
  xtreme::wire::Try(xtreme::wire::ParseIpv4Address, text);
  xtreme::wire::Try(xtreme::wire::ParseEndpoint, text);
  xtreme::wire::Try(xtreme::wire::ParseIpv4Prefix, text);
  return 0;
}
