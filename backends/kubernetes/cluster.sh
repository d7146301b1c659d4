#!/bin/bash
# cluster.sh RUN_FOLDER NODE_NAME CONTROL_GROUP MEMORY: first process of the cluster's namespaces (see ../network/network.sh), until it is killed.
# What is mounted here ends with it. The components are started from outside, see components.ts.
# All in functions: bash reads a script while it runs it, and this file may be changed meanwhile.
set -euo pipefail
. "$(dirname "$0")/../src/control-groups.sh"

# kubelet, runc and the network plugins keep things in folders that have no setting. None of it is to be met by another engine.
hide_shared_folders() {
  mount --make-rshared /
  for folder in /run/containerd /run/netns /run/runc /var/lib/cni /var/log/containers; do
    mkdir -p $folder
    mount -t tmpfs -o mode=755 kubernetes $folder
  done
  # Whatever boxes write is gone with the cluster.
  for folder in containerd etcd kubelet pod-logs; do
    mkdir -p "$run/$folder"
    mount -t tmpfs -o "mode=755,size=$memory" kubernetes "$run/$folder"
  done
}

# kubelet wants these settings of the whole machine. It gets copies: the machine keeps its own.
pretend() {
  echo "$2" >"$run/sysctl.${1##*/}"
  mount --bind "$run/sysctl.${1##*/}" "/proc/sys/$1"
}

make_control_groups() {
  prepare_control_groups "$group"
  for folder in $cgroups/*/; do
    [ ! -e "$folder/cgroup.procs" ] || mkdir -p "$folder/$group"
  done
  # Version 1: an empty set of processors lets nobody in.
  if [ -e "$cgroups/cpuset/$group" ]; then
    cat $cgroups/cpuset/cpuset.cpus >"$cgroups/cpuset/$group/cpuset.cpus"
    cat $cgroups/cpuset/cpuset.mems >"$cgroups/cpuset/$group/cpuset.mems"
  fi
}

main() {
  run=$1 node=$2 group=$3 memory=$4
  hostname "$node"
  hide_shared_folders
  pretend vm/overcommit_memory 1
  pretend vm/panic_on_oom 0
  pretend kernel/panic 10
  pretend kernel/panic_on_oops 1
  pretend kernel/keys/root_maxkeys 1000000
  pretend kernel/keys/root_maxbytes 25000000
  make_control_groups
  touch "$run/ready"
  # Orphans of all components and boxes end up here, and are reaped.
  while :; do sleep 3600 & wait $! || true; done
}
main "$@"
exit
