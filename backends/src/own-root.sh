#!/bin/bash
# own-root.sh FOLDER COMMAND...: in a fresh mount namespace, runs COMMAND so that no mount of it reaches the machine,
# and with a root that is a mount (dockerd unpacks layers in a root of its own; in a plain chroot `/` is no mount).
set -euo pipefail
folder=$1; shift
if ! mountpoint -q /; then
  mkdir -p "$folder"
  # The bind lies in a private mount: nobody outside sees it, whatever the chroot's own mount passes on.
  mount -t tmpfs -o mode=755 own-root "$folder"
  mount --make-private "$folder"
  mkdir "$folder/root"
  mount --rbind / "$folder/root"
  exec chroot "$folder/root" "$0" "$folder" "$@"
fi
mount --make-rslave /
exec "$@"
