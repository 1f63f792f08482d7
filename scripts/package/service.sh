#!/bin/sh
# Boots systemd in a clean root, and does there with the Debian package what the book's
# page "With the Debian package" says, as it stands there: install, certificate, users,
# Unix sockets, backup, restore, monitoring, from mosquitto, upgrade, remove. Then it upgrades
# twice with clients, to higher versions, the second with another configuration of its own:
# upgrades.py.
#
#   scripts/package/service.sh [PACKAGE]      (SUITE=trixie: of another Debian than this one)
#
# OLDER is the package of a former version to begin the upgrades with; without it PACKAGE is,
# and what it is upgraded to is the same program.
#
# Needs root, mmdebstrap and systemd-nspawn, which it installs. The root has a network of
# its own, without a way out. Skips itself, in one line, where systemd cannot be booted.
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
package=${1:-$(ls -t "$target"/debian/dunlin_*_"$(dpkg --print-architecture)".deb 2>/dev/null | head -1)}
if [ ! -f "$package" ]; then
    echo "package/service.sh: there is no package; make one with: make deb" >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "SKIPPED: package/service.sh needs root"
    exit 0
fi
command -v mmdebstrap >/dev/null || apt-get install -y -q mmdebstrap >/dev/null
command -v systemd-nspawn >/dev/null ||
    apt-get install -y -q --no-install-recommends systemd-container >/dev/null
root=$(mktemp -d "$target/package-machine.XXXXXX")
trap 'rm -rf "$root"' EXIT
suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
echo "== a clean $suite with systemd"
# What the page names, and what a minimal Debian has beside apt. Nothing starts by itself.
mmdebstrap --quiet --variant=apt \
    --include=adduser,systemd,systemd-sysv,dbus,iproute2,curl,mosquitto,mosquitto-clients,prometheus \
    --customize-hook='chroot "$1" systemctl --quiet disable mosquitto prometheus prometheus-node-exporter 2>/dev/null || true' \
    "$suite" "$root"
cp "$package" "$root/root/"
mkdir "$root/srv/upgrades"
cp "${OLDER:-$package}" "$root/srv/upgrades/0.deb"
if [ -n "${OLDER:-}" ]; then
    cp "$package" "$root/srv/upgrades/1.deb"
else
    scripts/package/newer.sh "$package" 1 "$root/srv/upgrades/1.deb"
fi
scripts/package/newer.sh "$package" 2 "$root/srv/upgrades/2.deb" '# a line of the new version'
python3 -B scripts/package/service.py "$root" docs/book/src/operate-service.md \
    /srv/upgrades/0.deb /srv/upgrades/1.deb /srv/upgrades/2.deb
