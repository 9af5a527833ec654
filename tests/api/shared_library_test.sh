#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The shared library: a C program links with it and runs; it exports the calls that xtreme.h
# declares under the version XTREME_0, and nothing else: no symbol of C++ or of a library inside it.
set -euo pipefail

library=api/libxtreme_ring.so.0
scratch="$TEST_TMPDIR/shared"
mkdir -p "$scratch"

fail() {
  echo "$1" >&2
  exit 1
}

soname="$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')"
[[ "$soname" == libxtreme_ring.so.0 ]] || fail "SONAME: '$soname'"

nm -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print $3 }' | sort \
  > "$scratch/exported"
# A declaration may break its line after the type; a call's name stands before the first bracket.
grep -v '^#' api/xtreme.h | tr '\n' ' ' | grep -oE 'XTREME_API [^(]*\(' |
  sed 's/.*[ *]\(xtreme_[a-z_]*\)($/\1@@XTREME_0/' | sort > "$scratch/declared"
(( $(wc -l < "$scratch/declared") >= 40 )) || fail "no calls were found in xtreme.h"
diff "$scratch/declared" "$scratch/exported" || fail "declared (<) and exported (>) differ"

gcc -std=c11 -Wall -Wextra -Werror -I . tests/api/outside.c "$library" -o "$scratch/outside"
printed="$(LD_LIBRARY_PATH=api "$scratch/outside")" || fail "the C program failed: $printed"
[[ "$printed" == 0.*": -19: "*xt-absent* ]] || fail "the C program printed: $printed"
