#!/bin/bash
# network.sh RUN_FOLDER CONFIG NODE LISTENERS_PROGRAM COMMAND...: first process of the network backend's namespaces.
# Builds a host's network with a fake internet behind it, then becomes COMMAND (the engine).
#
#   boxes ── engine's bridges ── [this namespace: "the host"] ── internet0 ── wire0 ═ eth0 [namespace "internet"]
#
# CONFIG is a shell file with the addresses. Nothing here is connected to the machine's own network.
set -euo pipefail
run=$1 config=$2 node=$3 program=$4; shift 4
# shellcheck disable=SC1090
. "$config"
mount --make-rprivate /
mount -t proc proc /proc
hostname breakwater-network 2>/dev/null || true

ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding

# --- The internet: one namespace that owns every public address.
unshare --net sleep infinity &
internet=$!
while [ "$(readlink /proc/$internet/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
inside() { nsenter --target $internet --net "$@"; }

ip link add internet0 type bridge
ip address add "$HOST4/24" dev internet0
ip address add "$HOST6/64" dev internet0 nodad
ip link set internet0 up
ip link add wire0 type veth peer name eth0 netns $internet
ip link set wire0 master internet0 up

inside ip link set lo up
inside ip address add "$ROUTER4/24" dev eth0
inside ip address add "$ROUTER6/64" dev eth0 nodad
inside ip link set eth0 up
for address in $ADDRESSES4; do inside ip address add "$address/32" dev lo; done
for address in $ADDRESSES6; do inside ip address add "$address/128" dev lo nodad; done
inside ip -6 route add "$BOXES6" via "$HOST6" dev eth0

# --- The host's only way out leads there.
ip route add default via "$ROUTER4" dev internet0
ip -6 route add default via "$ROUTER6" dev internet0
ip route add 169.254.169.254/32 via "$ROUTER4" dev internet0

# --- Names, for programs of "the host".
echo "nameserver $RESOLVER4" >"$run/resolv.conf"
[ ! -e /etc/resolv.conf ] || mount --bind "$run/resolv.conf" "$(readlink -f /etc/resolv.conf)"

# --- Who answers: on the internet, and as services of "the host".
listeners() {
  "$@" >>"$run/listeners.log" 2>&1 &
  local pid=$!
  for _ in $(seq 200); do [ -e "$ready" ] && return; kill -0 $pid; sleep 0.05; done
  return 1
}
ready=$run/internet.ready listeners inside "$node" --conditions=@breakwater/source "$program" "$run/internet.json"
ready=$run/host.ready listeners "$node" --conditions=@breakwater/source "$program" "$run/host.json"
exec "$@"
