#!/bin/sh
# Tests this driver as somebody outside of the project would: with packed packages, installed by npm into a copy of this folder.
#
#   sh test.sh [IMAGE] [ARGUMENTS FOR VITEST...]
#
# IMAGE is a Debian-like image for the contract suite: an OCI layout, a tar archive of a root file system (`docker export`), or a folder. Default is the base
# image that `npm run backends -- docker up` makes. Needs Debian's package `bubblewrap`; without root, `uidmap` as well.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
run() { node "$root/scripts/bootstrap.mjs" "$@"; }

image=$(sh "$here/image.sh" "$@")
[ $# -eq 0 ] || shift

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "packing"
cd "$root"
for name in runtime-api tar driver-kit box-helper harbor-taskset conformance; do
  run pnpm --silent --filter "@breakwater/$name" run build >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
  run pnpm --silent --filter "@breakwater/$name" pack --pack-destination "$work/packages" >/dev/null
done

echo "installing into a copy"
mkdir "$work/driver"
cp -R "$here/package.json" "$here/tsconfig.json" "$here/src" "$here/test" "$work/driver"
cd "$work/driver"
PATH=$(run sh -c 'dirname "$(command -v node)"'):$PATH
npm install --no-save --no-audit --no-fund --loglevel=error "$work"/packages/*.tgz
echo "comparing docs/write-a-driver.md with the sources"
node "$here/compare-document.mjs"
echo "checking types"
./node_modules/.bin/tsc
echo "testing with $image"
other=$(ls -t "${XDG_CACHE_HOME:-$HOME/.cache}"/breakwater/rootfs/trixie-*.tar 2>/dev/null | head -n 1)
BREAKWATER_IMAGE=$image BREAKWATER_OTHER_IMAGE=${other:-$image} ./node_modules/.bin/vitest run --maxWorkers 1 --maxConcurrency 3 "$@"
