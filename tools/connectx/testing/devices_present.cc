// SPDX-License-Identifier: Apache-2.0
//
// A user's program, for the test of connectx_test: succeeds when it finds three devices and was
// told "ping".

#include <infiniband/verbs.h>

#include <cstring>

int main(int argc, char** argv) {
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  ibv_free_device_list(devices);
  return count == 3 && argc == 2 && std::strcmp(argv[1], "ping") == 0 ? 0 : 1;
}
