#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The ABI of xtreme.h is the recorded one (tests/api/xtreme.abi): its calls, the layout of their
# structures, the values of its enumerations. New calls, and fields at the end of structures that
# carry their size, are no difference; record them as well, by `tests/api/abi_test.sh --record` from
# the root.
#
# libabigail compares what a compiler has made of the header: each declaration becomes a definition,
# each enumeration a variable. That the library exports just these calls is shared_library_test's.
set -euo pipefail

header=api/xtreme.h recorded=tests/api/xtreme.abi
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

{
  echo '#include "api/xtreme.h"'
  grep -v '^#' "$header" | tr '\n' ' ' | grep -oE 'XTREME_API [^;]*;' | sed 's/;$/ { __builtin_trap(); }/'
  sed -n 's/^enum \(xtreme_[a-z_]*\) {.*/enum \1 value_of_\1;/p' "$header"
} > "$scratch/header.c"
(( $(grep -c '^XTREME_API' "$scratch/header.c") >= 60 )) || { echo "no calls in $header" >&2; exit 1; }
gcc -std=c11 -g -O0 -fPIC -shared -fno-eliminate-unused-debug-types -I . "$scratch/header.c" \
  -o "$scratch/libheader.so"
abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed "$scratch/libheader.so" \
  > "$scratch/now.abi"
if [[ "${1-}" == --record ]]; then
  cp "$scratch/now.abi" "$recorded"
  exit
fi
cat > "$scratch/grown" <<'GROWN'
[suppress_type]
type_kind = struct
name_regexp = ^xtreme_(ring_options|udp_options|tcp_options|tcp_info|queues)$
has_data_member_inserted_at = end
GROWN
abidiff --no-added-syms --suppressions "$scratch/grown" "$recorded" "$scratch/now.abi" ||
  { echo "the ABI of $header is not the recorded one" >&2; exit 1; }
