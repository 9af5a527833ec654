// SPDX-License-Identifier: Apache-2.0
//
// A user's program, for the test of connectx_test: succeeds when it was told "ping" and finds three
// devices, each a ConnectX-4 Lx without TSO.

#include <infiniband/verbs.h>

#include <cstring>

namespace {

bool IsAsAsked(ibv_device* device) {
  constexpr uint32_t kConnectX4Lx = 0x1015;
  ibv_context* const context = ibv_open_device(device);
  if (context == nullptr) return false;
  ibv_device_attr_ex attributes{};
  const bool queried = ibv_query_device_ex(context, nullptr, &attributes) == 0;
  ibv_close_device(context);
  return queried && attributes.orig_attr.vendor_part_id == kConnectX4Lx &&
         attributes.tso_caps.max_tso == 0;
}

}  // namespace

int main(int argc, char** argv) {
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  bool as_asked = count == 3 && argc == 2 && std::strcmp(argv[1], "ping") == 0;
  for (int i = 0; i < count; ++i) as_asked = as_asked && IsAsAsked(devices[i]);
  ibv_free_device_list(devices);
  return as_asked ? 0 : 1;
}
