#!/bin/sh
# Makes of a Debian package one of a higher version with the same program, for the test of
# upgrades.
#
#   scripts/package/newer.sh PACKAGE NUMBER OUT [LINE]
#
# NUMBER is put behind the version. LINE is added to the package's own configuration.
set -eu
package=$1 number=$2 out=$3 line=${4:-}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
dpkg-deb --raw-extract "$package" "$made"
sed -i "s/^Version: .*/&+$number/" "$made/DEBIAN/control"
[ -z "$line" ] || echo "$line" >>"$made/etc/dunlin/dunlin.toml"
(cd "$made" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | sort | xargs -d '\n' md5sum >DEBIAN/md5sums)
dpkg-deb --root-owner-group -Zgzip --build "$made" "$out" >/dev/null
