#!/bin/bash
# rootless.sh RUN_FOLDER DATA_FOLDER GROUP: Podman's API service on RUN_FOLDER/docker.sock, run by a user without privileges, until TERM.
# Runs in mount, network and process namespaces of its own (see ../network/network.sh): the user and what is mounted here exist only in them.
# All in functions: bash reads a script while it runs it, and this file may be changed meanwhile.
set -euo pipefail
. "$(dirname "$0")/../src/control-groups.sh"

name=breakwater id=64990

# The user is known in these namespaces only, with the ids that its user namespaces may have.
make_user() {
  mkdir -p "$run/etc"
  (cat /etc/passwd; echo "$name:x:$id:$id::$run/home:/bin/sh") >"$run/etc/passwd"
  (cat /etc/group; echo "$name:x:$id:") >"$run/etc/group"
  echo "$name:1000000:65536" | tee "$run/etc/subuid" >"$run/etc/subgid"
  for file in passwd group subuid subgid; do mount --bind "$run/etc/$file" /etc/$file; done
}

# Its folders; images are in the cache folder, which nobody but root can walk to by its own path.
make_folders() {
  mkdir -p "$run/home/.config/containers" "$run/runtime/networks" "$run/images"
  chown $id:$id "$data"
  mount --bind "$data" "$run/images"
  for folder in /run/netns /dev/shm /dev/net; do
    mkdir -p $folder
    mount -t tmpfs -o mode=1777 "podman" $folder
  done
  # Networks of boxes are programs that relay between a box and this device.
  mknod -m 666 /dev/net/tun c 10 200
  ln -sf runtime/docker.sock "$run/docker.sock"
}

write_configuration() {
  local folder=$run/home/.config/containers
  cat >"$folder/containers.conf" <<END
[containers]
default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=$(ulimit -Hu | sed s/unlimited/-1/):$(ulimit -Hu | sed s/unlimited/-1/)"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
exit_command_delay = 10
[network]
network_backend = "cni"
cni_plugin_dirs = ["/usr/lib/cni"]
network_config_dir = "$run/runtime/networks"
default_subnet = "10.213.0.0/24"
default_subnet_pools = [{ base = "10.214.0.0/16", size = 24 }]
END
  printf '[storage]\ndriver = "overlay"\nrunroot = "%s"\ngraphroot = "%s"\n' "$run/runtime/storage" "$run/images" >"$folder/storage.conf"
  echo 'unqualified-search-registries = ["docker.io"]' >"$folder/registries.conf"
  chown -R $id:$id "$run/home" "$run/runtime"
  chmod 700 "$run/runtime"
}

# Boxes have no control groups of their own here: one for all of them keeps a fork bomb from the machine.
join_control_group() {
  prepare_control_groups "$group"
  local folder=$cgroups/pids/$group
  [ -e "$folder" ] || folder=$cgroups/$group
  echo 1000 >"$folder/pids.max"
  echo $$ >"$folder/cgroup.procs"
}

run_service() {
  cd /
  setpriv --reuid $id --regid $id --clear-groups --reset-env \
    env PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$run/home" XDG_RUNTIME_DIR="$run/runtime" TMPDIR="$run/runtime" \
    podman --log-level warn system service --time 0 "unix://$run/runtime/docker.sock" >>"$run/podman.log" 2>&1 &
  service=$!
  trap 'kill -TERM $service 2>/dev/null' TERM INT
  wait $service || true
}

main() {
  run=$1 data=$2 group=$3
  join_control_group
  make_user
  make_folders
  write_configuration
  run_service
}
main "$@"
exit
