# Sourced by the scripts that run an engine.
cgroups=/sys/fs/cgroup

# --- Control groups: as the machine has them; mounted here when it has none (a bare chroot).
# prepare_control_groups GROUP: where boxes can be made, all of them below GROUP.
prepare_control_groups() {
  local ours=$1
  [ -e $cgroups/cgroup.controllers ] || [ -e $cgroups/memory/cgroup.procs ] || mount_controllers
  # Version 2 inside another container: controllers can be handed down only from a group without processes.
  if [ -e $cgroups/cgroup.controllers ] && [ -e $cgroups/cgroup.type ]; then empty_own_group; fi
  limit_processes "$ours"
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
  local group=$cgroups/pids/$1
  if [ -e $cgroups/cgroup.controllers ]; then group=$cgroups/$1; fi
  mkdir -p "$group"
  [ ! -e "$group/pids.max" ] || echo $(($(cat /proc/sys/kernel/pid_max) / 4)) >"$group/pids.max"
}
