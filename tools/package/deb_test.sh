#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What is in the package works where it was unpacked, without the tree that it was built from.
set -euo pipefail

readonly DEB="$PWD/$1"
readonly ROOT="$TEST_TMPDIR/root"
readonly LIBRARIES="$ROOT/usr/lib/x86_64-linux-gnu"
failures=0

fail() {
  echo "FAILED: $1" >&2
  failures=$(( failures + 1 ))
}

# prints WHAT PATTERN COMMAND...: some line that the command prints matches.
prints() {
  local what="$1" pattern="$2" printed
  shift 2
  printed="$("$@" 2>&1)" || fail "$what: exit status $?: $printed"
  grep -Eq -- "$pattern" <<< "$printed" || fail "$what: no line like '$pattern' in: $printed"
}

says_what_it_needs() {
  prints "the name" '^ Package: xtreme$' dpkg-deb --info "$DEB"
  prints "the verbs" '^ Depends: .*libibverbs1 ' dpkg-deb --info "$DEB"
  prints "the driver" '^ Depends: .*ibverbs-providers ' dpkg-deb --info "$DEB"
  prints "its owner" ' root/root .* ./usr/bin/xtreme_check$' dpkg-deb --contents "$DEB"
  prints "its licence" 'Apache License' cat "$ROOT/usr/share/doc/xtreme/copyright"
}

a_program_compiles_and_runs() {
  cat > "$TEST_TMPDIR/program.c" <<'END'
#include <api/xtreme.h>
#include <mellanox/vma_extra.h>
#include <stdio.h>
int main(void) {
  return printf("xtreme %s\n", xtreme_version()) < 0;
}
END
  local -a flags
  export PKG_CONFIG_LIBDIR="$LIBRARIES/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$ROOT"
  read -ra flags < <(pkg-config --cflags --libs xtreme)
  gcc -Wall -Werror -o "$TEST_TMPDIR/program" "$TEST_TMPDIR/program.c" "${flags[@]}"
  prints "a program" '^xtreme [0-9]+\.[0-9]+\.[0-9]+$' \
    env LD_LIBRARY_PATH="$LIBRARIES" "$TEST_TMPDIR/program"
}

its_programs_run() {
  local program
  for program in xtreme_check xtreme_dump xtreme_stats connectx_run; do
    prints "$program" '[Uu]sage' "$ROOT/usr/bin/$program" --help
  done
}

the_software_card_is_there() {
  prints "ibv_devinfo" 'hca_id:' "$ROOT/usr/bin/connectx_run" -- ibv_devinfo
}

# Without any card a program runs as if the library were not there.
a_program_is_left_alone_without_a_card() {
  prints "a preloaded program" '^bytes$' env LD_PRELOAD="$LIBRARIES/libxtreme.so" python3 -c '
import socket
a, b = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
a.bind(("127.0.0.1", 0))
b.sendto(b"bytes", a.getsockname())
print(a.recv(16).decode())'
}

dpkg-deb --extract "$DEB" "$ROOT"
says_what_it_needs
a_program_compiles_and_runs
its_programs_run
the_software_card_is_there
a_program_is_left_alone_without_a_card
exit "$(( failures > 0 ))"
