#!/bin/sh
# Runs the task `hello-separate` with boxes of this driver: no engine, no root.
#
#   sh demo.sh [IMAGE]
#
# The task as it is asks for an image that is built and for limits, which this driver refuses. So it runs a copy that asks for neither.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
image=$(sh "$here/image.sh" "$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
cp -R "$here/../tasks/hello-separate" "$work/hello-separate"
rm "$work/hello-separate/environment/Dockerfile"
sed -i "/^cpus\|^memory_mb/d; s|^workdir = .*|&\ndocker_image = \"$image\"|" "$work/hello-separate/task.toml"
cd "$work"
node "$here/../../scripts/bootstrap.mjs" sh -c 'cd "$1" && shift && exec node "$@"' sh "$work" \
  --conditions=@breakwater/source "$here/../../packages/breakwater/src/bin.ts" run -p hello-separate --runtime "$here" -a oracle
