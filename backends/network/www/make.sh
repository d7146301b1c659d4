#!/bin/bash
# make.sh: makes the small packages of the fake internet, for pip, npm, apt and git. The results are committed: tests need none of these tools.
# Needs python3, tar, ar (binutils), gzip, git.
set -euo pipefail
cd "$(dirname "$0")"
export SOURCE_DATE_EPOCH=1764460800 TZ=UTC
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pack() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$SOURCE_DATE_EPOCH -C "$1" -cf - "${@:2}" | gzip -n; }

# pip: an index page and a wheel.
mkdir -p pypi.org/simple/tiny files.pythonhosted.org/packages
python3 - files.pythonhosted.org/packages/tiny-1.0-py3-none-any.whl <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    def add(name, text): wheel.writestr(zipfile.ZipInfo(name, (2025, 11, 30, 0, 0, 0)), text)
    add("tiny.py", "def hello():\n    return 'hello from tiny'\n")
    add("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    add("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: make.sh\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    add("tiny-1.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.dist-info/METADATA,,\ntiny-1.0.dist-info/WHEEL,,\ntiny-1.0.dist-info/RECORD,,\n")
PYTHON
echo '<!doctype html><a href="https://files.pythonhosted.org/packages/tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a>' >pypi.org/simple/tiny/index.html

# npm: a package document and an archive.
mkdir -p registry.npmjs.org/tiny/- "$work/package"
echo '{ "name": "tiny", "version": "1.0.0", "main": "index.js" }' >"$work/package/package.json"
echo 'module.exports = () => "hello from tiny";' >"$work/package/index.js"
pack "$work" package >registry.npmjs.org/tiny/-/tiny-1.0.0.tgz
integrity=sha512-$(openssl dgst -sha512 -binary registry.npmjs.org/tiny/-/tiny-1.0.0.tgz | base64 -w0)
cat >registry.npmjs.org/tiny/index.json <<END
{ "name": "tiny", "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": { "name": "tiny", "version": "1.0.0",
  "dist": { "tarball": "https://registry.npmjs.org/tiny/-/tiny-1.0.0.tgz", "integrity": "$integrity" } } } }
END

# apt: a flat repository with one package.
mkdir -p deb.debian.org/tiny "$work/control" "$work/data/usr/share/tiny"
printf 'Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: Breakwater <tests@example.com>\nDescription: a file\n' >"$work/control/control"
echo "hello from tiny" >"$work/data/usr/share/tiny/hello"
pack "$work/control" ./control >"$work/control.tar.gz"
pack "$work/data" ./usr >"$work/data.tar.gz"
echo 2.0 >"$work/debian-binary"
(cd "$work" && ar rcD tiny.deb debian-binary control.tar.gz data.tar.gz)
mv "$work/tiny.deb" deb.debian.org/tiny/tiny_1.0_all.deb
{
  cat "$work/control/control"
  echo "Filename: ./tiny_1.0_all.deb"
  echo "Size: $(stat -c %s deb.debian.org/tiny/tiny_1.0_all.deb)"
  echo "SHA256: $(sha256sum deb.debian.org/tiny/tiny_1.0_all.deb | cut -d' ' -f1)"
} >deb.debian.org/tiny/Packages

# git: a bare repository as a web server without git shows it.
rm -rf github.com
git init -q -b main "$work/source"
echo "hello from tiny" >"$work/source/README"
git -C "$work/source" add README
GIT_AUTHOR_DATE="@$SOURCE_DATE_EPOCH +0000" GIT_COMMITTER_DATE="@$SOURCE_DATE_EPOCH +0000" \
  git -C "$work/source" -c user.name=Breakwater -c user.email=tests@example.com commit -q -m "Say hello"
git clone -q --bare --template= "$work/source" github.com/example/tiny.git
git -C github.com/example/tiny.git remote remove origin
git -C github.com/example/tiny.git repack -q -d
git -C github.com/example/tiny.git update-server-info
