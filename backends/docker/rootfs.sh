#!/bin/bash
# rootfs.sh SUITE MIRROR SECURITY-MIRROR PACKAGES FOLDER ARCHIVE: a small Debian from its packages, as one tar archive.
# An empty mirror means debootstrap's default; an empty security mirror leaves that source out. Needs root.
set -euo pipefail
suite=$1 mirror=$2 security=$3 packages=$4 folder=$5 archive=$6
root=$folder/root
trap 'rm -rf --one-file-system "$folder"' EXIT
mount --make-rprivate / 2>/dev/null || true # a chroot's root is no mount of its own

mkdir -p "$folder"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# A suite that is newer than this debootstrap is made as those before it.
script=$suite; [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=sid
debootstrap --variant=minbase --keyring="$keyring" --include="$packages" "$suite" "$root" ${mirror:+"$mirror" "$script"} >"$archive.log" 2>&1 ||
  { tail -n 15 "$archive.log" "$root/debootstrap/debootstrap.log" >&2 || true; exit 1; }
umount "$root/proc" "$root/sys" 2>/dev/null || true

mirror=${mirror:-$(grep -oPm1 '^deb \K\S+' "$root/etc/apt/sources.list")}
{
  echo "deb $mirror $suite main"
  echo "deb $mirror $suite-updates main"
  [ -z "$security" ] || echo "deb $security $suite-security main"
} >"$root/etc/apt/sources.list"

# What a box never reads; the machine's own name and resolver.
rm -rf "$root"/var/{cache/apt/archives,lib/apt/lists,cache/debconf,log}/* "$root"/usr/share/{doc,man,info,locale,lintian}/* \
  "$root"/{debootstrap,etc/hostname,etc/resolv.conf} "$root"/dev/* "$root"/run/*
mkdir -p "$root"/var/{cache/apt/archives,lib/apt/lists}/partial
tar --numeric-owner --xattrs --sort=name -C "$root" -cf "$archive.new" .
mv "$archive.new" "$archive"
rm -f "$archive.log"
