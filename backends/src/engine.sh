#!/bin/bash
# engine.sh RUN_FOLDER BRIDGE ADDRESS...: one private containerd and dockerd, until TERM.
# Runs in a mount namespace of its own (see own-root.sh): what is mounted here ends with it.
# All in functions: bash reads a script while it runs it, and this file may be changed meanwhile.
set -euo pipefail

. "$(dirname "$0")/control-groups.sh"

# --- The bridge. Made here, because dockerd only makes one called docker0.
make_bridge() {
  ip link show dev "$bridge" >/dev/null 2>&1 || ip link add "$bridge" type bridge
  for address in "$@"; do
    ip address replace "$address" dev "$bridge" nodad 2>/dev/null || ip address replace "$address" dev "$bridge"
  done
  ip link set "$bridge" up
}

# --- containerd, then dockerd; the end of either ends both.
run_engine() {
  dockerd=
  containerd --config "$run/containerd.toml" >>"$run/containerd.log" 2>&1 &
  containerd=$!
  echo $containerd >"$run/containerd.pid"
  trap finish TERM INT
  for _ in $(seq 300); do [ -S "$run/containerd.sock" ] && break; kill -0 $containerd; sleep 0.05; done
  dockerd --config-file "$run/daemon.json" >>"$run/dockerd.log" 2>&1 &
  dockerd=$!
  wait -n || true
  finish
}

finish() {
  trap '' TERM INT
  for pid in $dockerd $containerd; do
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  exit 0
}

main() {
  run=$1 bridge=$2
  shift 2
  prepare_control_groups "$bridge"
  make_bridge "$@"
  run_engine
}

main "$@"
exit
