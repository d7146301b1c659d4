#!/bin/sh
# build.sh [FOLDER]: builds the helper for every architecture into FOLDER (default: bin). The same sources and toolchain give the
# same bytes.
set -eu
mkdir -p "${1:-$(dirname "$0")/bin}"
out=$(cd "${1:-$(dirname "$0")/bin}" && pwd)
cd "$(dirname "$0")"
for arch in amd64 arm64; do
  CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOFLAGS= go build -trimpath -buildvcs=false -ldflags "-s -w -buildid=" -o "$out/helper-linux-$arch" ./helper
done
