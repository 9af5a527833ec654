# SPDX-License-Identifier: Apache-2.0
#
# Sourced by tools/test and tools/demo: where their outputs go, and the namespaces in which they run
# so that nothing is left behind.

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
