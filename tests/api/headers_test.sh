#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The public headers compile as what they say they are, and need nothing but the standard library:
# xtreme.h as C11 and C++20, xtreme.hpp as C++20, with gcc and, where it is installed, with clang.
# The include path holds api/ alone, and in front of it an absl/ of which every header is an error.
set -euo pipefail

scratch="$TEST_TMPDIR/headers"
mkdir -p "$scratch/include/api" "$scratch/poison"
cp api/xtreme.h api/xtreme.hpp "$scratch/include/api/"
while IFS= read -r header; do
  mkdir -p "$scratch/poison/${header%/*}"
  echo "#error a public header includes $header" > "$scratch/poison/$header"
done < <(cd /usr/include && find -L absl -name "*.h")

# compile COMPILER LANGUAGE STANDARD HEADER
compile() {
  echo "#include \"$4\"" |
    "$1" -x "$2" -std="$3" -pedantic -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion \
      -Werror -fsyntax-only \
      -I "$scratch/poison" -I "$scratch/include" -
}

for pair in gcc:g++ clang:clang++; do
  if ! command -v "${pair#*:}" > /dev/null && [[ "$pair" == clang:* ]]; then
    echo "clang is not installed: not tried"
    continue
  fi
  compile "${pair%:*}" c c11 api/xtreme.h
  compile "${pair#*:}" c++ c++20 api/xtreme.h
  compile "${pair#*:}" c++ c++20 api/xtreme.hpp
  if compile "${pair#*:}" c++ c++20 absl/status/status.h 2> /dev/null; then
    echo "the poisoned headers were not found first: this test would not see one" >&2
    exit 1
  fi
  echo "${pair%:*}: as C11 and C++20"
done
