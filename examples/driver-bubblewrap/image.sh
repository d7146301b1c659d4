#!/bin/sh
# Prints the path of the image to use: the one that is named, else the root file system that `npm run backends -- bubblewrap up` makes.
set -eu
image=${1:-$(ls -t "${XDG_CACHE_HOME:-$HOME/.cache}"/breakwater/rootfs/bookworm-*.tar 2>/dev/null | head -n 1)}
if [ -z "$image" ]; then
  echo "no image: name one, or make one with 'npm run backends -- bubblewrap up'" >&2
  exit 2
fi
realpath "$image"
