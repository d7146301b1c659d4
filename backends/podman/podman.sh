#!/bin/bash
# podman.sh RUN_FOLDER DATA_FOLDER: Podman's API service on RUN_FOLDER/docker.sock, until TERM.
# Runs in mount, network and process namespaces of its own (see ../network/network.sh): what is mounted here ends with them.
# All in functions: bash reads a script while it runs it, and this file may be changed meanwhile.
set -euo pipefail
. "$(dirname "$0")/../src/control-groups.sh"

# Where Podman, runc and the network plugins keep what has no setting, so that no other Podman of the machine is met there.
hide_shared_folders() {
  for folder in /run/runc /run/netns /var/lib/cni /dev/shm; do
    mkdir -p $folder
    mount -t tmpfs -o mode=755 "podman" $folder
  done
  chmod 1777 /dev/shm
}

write_configuration() {
  # Debian prefers crun, which refuses control groups of both versions side by side.
  cat >"$run/containers.conf" <<END
[containers]
default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=$(ulimit -Hu | sed s/unlimited/-1/):$(ulimit -Hu | sed s/unlimited/-1/)"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
# For how long a watcher of each program that has ended stays, as somebody may ask for its exit code. By default 300 s, which makes thousands.
exit_command_delay = 10
[network]
network_backend = "cni"
cni_plugin_dirs = ["/usr/lib/cni"]
network_config_dir = "$run/networks"
default_subnet = "10.213.0.0/24"
default_subnet_pools = [{ base = "10.214.0.0/16", size = 24 }]
END
  printf '[storage]\ndriver = "overlay"\nrunroot = "%s"\ngraphroot = "%s"\n' "$run/storage" "$data" >"$run/storage.conf"
  echo 'unqualified-search-registries = ["docker.io"]' >"$run/registries.conf"
  mkdir -p "$run/networks"
}

run_service() {
  export CONTAINERS_CONF=$run/containers.conf CONTAINERS_STORAGE_CONF=$run/storage.conf CONTAINERS_REGISTRIES_CONF=$run/registries.conf
  podman --root "$data" --runroot "$run/storage" --tmpdir "$run/libpod" --log-level warn \
    system service --time 0 "unix://$run/docker.sock" >>"$run/podman.log" 2>&1 &
  service=$!
  trap 'kill -TERM $service 2>/dev/null' TERM INT
  wait $service || true
}

main() {
  run=$1 data=$2
  prepare_control_groups libpod_parent
  hide_shared_folders
  write_configuration
  run_service
}
main "$@"
exit
