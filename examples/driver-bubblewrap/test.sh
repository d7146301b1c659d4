#!/bin/sh
# Tests this driver as somebody outside of the project would: with packed packages, installed by npm into a copy of this folder.
#
#   sh test.sh [COMMAND...]
#
# COMMAND runs in the copy; the default is `vitest run`. BREAKWATER_IMAGE is a Debian-like image for the suites: an OCI layout, a tar archive of a root file
# system (`docker export`), or a folder; BREAKWATER_OTHER_IMAGE another one. Needs bubblewrap and ids for boxes: `npm run backends -- bubblewrap up`
# brings all four, and `npm run conformance -- bubblewrap` is both together.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
run() { node "$root/scripts/bootstrap.mjs" "$@"; }

[ $# -gt 0 ] || set -- vitest run
BREAKWATER_IMAGE=$(sh "$here/image.sh" "${BREAKWATER_IMAGE:-}")
export BREAKWATER_IMAGE BREAKWATER_OTHER_IMAGE="${BREAKWATER_OTHER_IMAGE:-$BREAKWATER_IMAGE}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
echo "packing"
cd "$root"
run node scripts/pack.ts "$work/packages" runtime-api tar box-helper driver-kit harbor-taskset conformance

echo "installing into a copy"
# Selections of test files by their path in the repository find them in the copy as well.
copy=$work/examples/driver-bubblewrap
mkdir -p "$copy"
cp -R "$here/package.json" "$here/tsconfig.json" "$here/vitest.config.ts" "$here/src" "$here/test" "$copy"
cd "$copy"
PATH=$copy/node_modules/.bin:$(run sh -c 'dirname "$(command -v node)"'):$PATH
npm install --no-save --no-audit --no-fund --loglevel=error "$work"/packages/*.tgz
echo "comparing docs/write-a-driver.md with the sources"
node "$here/compare-document.mjs"
[ "$(cat src/*.ts | wc -l)" -lt 600 ] || { echo "the sources have 600 lines or more" >&2; exit 1; }
echo "checking types"
tsc
echo "testing with $BREAKWATER_IMAGE"
# What the tests leave in the folder for temporary files goes with the copy.
TMPDIR=$work "$@"
