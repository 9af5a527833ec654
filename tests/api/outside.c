/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A C program that links with the shared library: takes a profile, sets a field by its name, asks
 * for a ring that cannot be and prints what it was told.
 */
#include <stdio.h>

#include "api/xtreme.h"

int main(void) {
  xtreme_ring_options options;
  xtreme_ring ring;
  int code;

  if (xtreme_ring_options_init(&options, sizeof options, "dev") != 0) return 2;
  if (xtreme_ring_options_set(&options, "rx_buffers", "4096") != 0) return 3;
  options.interface_name = "xt-absent";
  code = xtreme_ring_open(&options, &ring);
  printf("%s: %d: %s\n", xtreme_version(), code, xtreme_error());
  return code < 0 ? 0 : 4;
}
