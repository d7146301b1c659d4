#!/bin/bash
# own-system.sh SYSTEM RUN_FOLDER DATA_FOLDER BRIDGE ADDRESS...: the private engine of ../src/engine.sh with the programs and libraries of SYSTEM, a
# root file system of another Debian. Runs in mount, network and process namespaces of its own: what is mounted here ends with them.
# All in functions: bash reads a script while it runs it, and this file may be changed meanwhile.
set -euo pipefail

# In a mount namespace of the engine's own, whose root SYSTEM becomes: with a mere chroot, who joins a box's namespace would be in this machine's root.
become_system() {
  mount --bind "$system" "$system"
  # What the engine and this machine have in common, at the same paths: the kernel's folders, and the engine's own two.
  for folder in /proc /sys /dev "$run" "$data"; do
    mkdir -p "$system$folder"
    mount --rbind "$folder" "$system$folder"
  done
  # The host's name server, see ../network/network.sh.
  touch "$system/etc/resolv.conf"
  mount --bind "$run/resolv.conf" "$system/etc/resolv.conf"
  mkdir -p "$system/breakwater" "$system/mnt"
  mount --bind "$scripts" "$system/breakwater"
  cd "$system"
  pivot_root . mnt
  umount --lazy /mnt
  exec chroot . /breakwater/engine.sh "$run" "$@"
}

main() {
  local inside=
  if [ "$1" = --inside ]; then
    inside=yes
    shift
  fi
  system=$1 run=$2 data=$3
  scripts=$(dirname "$(dirname "$(readlink -f "$0")")")/src
  if [ -n "$inside" ]; then
    shift 3
    become_system "$@"
  fi
  # This process stays in the machine's file system: who enters the namespaces by it finds this machine's programs.
  unshare --mount --propagation private "$0" --inside "$@" &
  engine=$!
  trap 'kill -TERM $engine 2>/dev/null' TERM INT
  wait $engine || true
}
main "$@"
exit
