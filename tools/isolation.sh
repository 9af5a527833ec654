# SPDX-License-Identifier: Apache-2.0
#
# Sourced by tools/test and tools/demo: where their outputs go, with what they compile, and the
# namespaces in which they run so that nothing is left behind.

# A folder for Bazel's outputs that this user may write: XTREME_TEST_CACHE, ~/.cache/xtreme, or one
# of the user's in /tmp.
output_root() {
  local root="${XTREME_TEST_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/xtreme}"
  if ! mkdir -p "$root" 2> /dev/null || [[ ! -w "$root" ]]; then
    root="${TMPDIR:-/tmp}/xtreme-$(id -un)"
    mkdir -p "$root"
  fi
  echo "$root"
}

# Where tools/install lays what is in packages that are not to be installed.
extracted_packages() {
  echo "$(output_root)/extracted"
}

# A startup option of Bazel: it compiles with tools/compiler/gcc. Its path is part of every action, so
# that it has one of its own rather than the clone's; precompiled headers of a day ago are removed.
compiler_option() {
  local folder
  folder="$(output_root)/compiler"
  mkdir -p "$folder/headers"
  find "$folder/headers" -mindepth 1 -maxdepth 1 -mmin +1440 -exec rm -rf {} +
  install -C -m 755 tools/compiler/gcc "$folder/gcc"
  install -C -m 644 tools/compiler/common.h tools/compiler/common_test.h "$folder"
  printf 'build %s\n' "--repo_env=CC=$folder/gcc" "--sandbox_writable_path=$folder" > "$folder/bazelrc"
  echo "--bazelrc=$folder/bazelrc"
}

# Options of unshare, one a line: network and mount namespaces of our own, in which an ordinary user
# is root.
namespaces_to_enter() {
  local -a namespaces=(--net --mount)
  if (( EUID != 0 )) || ! unshare "${namespaces[@]}" true 2> /dev/null; then
    namespaces=(--user --map-root-user --net --mount)
  fi
  printf '%s\n' "${namespaces[@]}"
}

# To be called first inside them.
prepare_namespaces() {
  mount -t tmpfs tmpfs /run
  # In a container whose /sys is masked the kernel refuses; only what reads /sys notices.
  mount -t sysfs sysfs /sys 2> /dev/null || echo "keeping the outer /sys" >&2
  ip link set lo up
}
