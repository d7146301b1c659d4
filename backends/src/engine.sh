#!/bin/bash
# engine.sh RUN_FOLDER BRIDGE ADDRESS...: one private containerd and dockerd, until TERM.
# Runs in a mount namespace of its own (see own-root.sh): what is mounted here ends with it.
# All in functions: bash reads a script while it runs it, and this file may be changed meanwhile.
set -euo pipefail

cgroups=/sys/fs/cgroup

# --- Control groups: as the machine has them; mounted here when it has none (a bare chroot).
prepare_control_groups() {
  [ -e $cgroups/cgroup.controllers ] || [ -e $cgroups/memory/cgroup.procs ] || mount_controllers
  # Version 2 inside another container: controllers can be handed down only from a group without processes.
  if [ -e $cgroups/cgroup.controllers ] && [ -e $cgroups/cgroup.type ]; then empty_own_group; fi
  limit_processes
}

mount_controllers() {
  [ -e /sys/kernel ] || mount -t sysfs sysfs /sys
  if ! grep -qE '^[1-9][0-9]*:[a-z]' /proc/self/cgroup; then
    mount -t cgroup2 cgroup2 $cgroups
    return
  fi
  mount -t tmpfs -o mode=755 cgroups $cgroups
  grep -oP '^[1-9]\d*:\K[a-z][a-z_,]*(?=:)' /proc/self/cgroup | while read -r controllers; do
    mkdir "$cgroups/$controllers"
    mount -t cgroup -o "$controllers" cgroup "$cgroups/$controllers"
    for one in ${controllers//,/ }; do [ -e "$cgroups/$one" ] || ln -s "$controllers" "$cgroups/$one"; done
  done
  mkdir $cgroups/systemd
  mount -t cgroup -o none,name=systemd cgroup $cgroups/systemd
}

empty_own_group() {
  mkdir -p $cgroups/init
  for _ in 1 2 3; do
    while read -r pid; do echo "$pid" >$cgroups/init/cgroup.procs || true; done <$cgroups/cgroup.procs
    sed -e 's/ / +/g' -e 's/^/+/' $cgroups/cgroup.controllers >$cgroups/cgroup.subtree_control && break
  done 2>/dev/null
}

# All boxes together get a quarter of the machine's processes: one that forks without end must not take the machine with it.
limit_processes() {
  local group=$cgroups/pids/$bridge
  if [ -e $cgroups/cgroup.controllers ]; then group=$cgroups/$bridge; fi
  mkdir -p "$group"
  [ ! -e "$group/pids.max" ] || echo $(($(cat /proc/sys/kernel/pid_max) / 4)) >"$group/pids.max"
}

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
  prepare_control_groups
  make_bridge "$@"
  run_engine
}

main "$@"
exit
