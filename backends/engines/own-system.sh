#!/bin/bash
# own-system.sh SYSTEM RUN_FOLDER DATA_FOLDER BRIDGE ADDRESS...: the private engine of ../src/engine.sh with the programs and libraries of SYSTEM, a
# root file system of another Debian. Runs in mount, network and process namespaces of its own: what is mounted here ends with them.
# All in functions: bash reads a script while it runs it, and this file may be changed meanwhile.
set -euo pipefail

# What the engine and this machine have in common, at the same paths: the kernel's folders, and the engine's own two.
enter_system() {
  mount --bind "$system" "$system"
  for folder in /proc /sys /dev "$run" "$data"; do
    mkdir -p "$system$folder"
    mount --rbind "$folder" "$system$folder"
  done
  mkdir -p "$system/breakwater"
  mount --bind "$scripts" "$system/breakwater"
}

main() {
  system=$1 run=$2 data=$3
  scripts=$(dirname "$(dirname "$(readlink -f "$0")")")/src
  shift 3
  enter_system
  # This process stays in the machine's file system: who enters the namespaces by it finds this machine's programs.
  chroot "$system" /breakwater/engine.sh "$run" "$@" &
  engine=$!
  trap 'kill -TERM $engine 2>/dev/null' TERM INT
  wait $engine || true
}
main "$@"
exit
