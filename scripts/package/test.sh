#!/bin/sh
# Installs the Debian package in a clean root made from the machine's package
# archive, and does what an administrator does: install, start as the service's
# user, publish and receive, change the configuration, install again, purge.
#
#   scripts/package/test.sh [PACKAGE]      (SUITE=trixie: of another Debian than this one)
#
# Needs root and mmdebstrap, which it installs; there is no systemd in the root, so
# the script reads the unit and stands in for it, the service manager's socket
# included. The unit itself is read by systemd-analyze where that is there.
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
package=${1:-$(ls -t "$target"/debian/dunlin_*_"$(dpkg --print-architecture)".deb 2>/dev/null | head -1)}
if [ ! -f "$package" ]; then
    echo "package/test.sh: there is no package; make one with: make deb" >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "SKIPPED: package/test.sh needs root"
    exit 0
fi
command -v mmdebstrap >/dev/null || apt-get install -y -q mmdebstrap >/dev/null
root=$(mktemp -d "$target/package-root.XXXXXX")
broker=
net=dunlin-package-$$
end() {
    [ -z "$broker" ] || kill "$broker" 2>/dev/null || true
    ip netns delete "$net" 2>/dev/null || true
    umount "$root/proc" 2>/dev/null || true
    rm -rf "$root"
}
trap end EXIT
suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
echo "== a clean $suite"
mmdebstrap --quiet --variant=apt --include=adduser "$suite" "$root"
mount -t proc proc "$root/proc"
echo 127.0.0.1 localhost > "$root/etc/hosts"
cp "$package" "$root/dunlin.deb"
ip netns add "$net"
ip -n "$net" link set lo up
# Its ports are its own.
inside() { ip netns exec "$net" chroot "$root" "$@"; }
fail() {
    echo "package/test.sh: $1" >&2
    [ ! -f "$root/log" ] || cat "$root/log" >&2
    exit 1
}

echo "== install"
DEBIAN_FRONTEND=noninteractive inside apt-get install -y -qq --no-install-recommends /dunlin.deb >"$root/log" 2>&1 ||
    fail "the package cannot be installed"
inside getent passwd dunlin >/dev/null || fail "there is no user"
for file in /usr/share/man/man1/dunlin-broker.1.gz /etc/dunlin/dunlin.toml \
    /usr/share/bash-completion/completions/dunlin /usr/lib/systemd/system/dunlin.service \
    /usr/share/doc/dunlin/CHANGELOG.md /usr/share/doc/dunlin/book/operate-service.md; do
    inside dpkg -L dunlin | grep -qx "$file" || fail "$file is not in the package"
done
[ "$(inside stat -c %U:%a /var/lib/dunlin)" = dunlin:700 ] || fail "the data directory is open"
if command -v systemd-analyze >/dev/null; then
    ! systemd-analyze verify --root="$root" dunlin.service 2>&1 |
        grep -E 'Unknown|[Ii]nvalid|parse|neither' || fail "the unit has mistakes"
    systemd-analyze security --offline=true --root="$root" dunlin.service 2>/dev/null | tail -1
fi

unit() { sed -n "s/^$1=//p" "$root/usr/lib/systemd/system/dunlin.service"; }
start() {
    inside setpriv --reuid dunlin --regid dunlin --clear-groups --no-new-privs \
        --bounding-set=-all $(unit ExecStartPre) || fail "the configuration is refused"
    ip netns exec "$net" chroot "$root" env HOME=/var/lib/dunlin setpriv --reuid dunlin --regid dunlin --clear-groups \
        --no-new-privs --bounding-set=-all $(unit ExecStart) > "$root/log" 2>&1 &
    broker=$!
    for _ in $(seq 300); do
        ! grep -q 'listening  quic' "$root/log" || return 0
        kill -0 "$broker" 2>/dev/null || fail "the broker has ended"
        sleep 0.1
    done
    fail "the broker does not listen"
}
stop() {
    kill "$broker"
    wait "$broker" || fail "the broker did not stop as it should"
    broker=
}

echo "== start, publish, receive, as the service's user"
start
inside dunlin pub -t demo/kept -m first -r -q 1
[ "$(inside dunlin sub -t demo/kept -C 1 -W 30)" = first ] || fail "the message did not arrive"
url=$(sed -n 's/.*sub --url \([^ ]*\).*/\1/p' "$root/log")
[ "$(inside dunlin sub --url "$url" --ca /var/lib/dunlin/certs/ca.pem -t demo/kept -C 1 -W 30)" = first ] ||
    fail "nothing arrived over QUIC"
stop

echo "== install again: configuration and data stay"
echo '# changed by the administrator' >> "$root/etc/dunlin/dunlin.toml"
DEBIAN_FRONTEND=noninteractive inside apt-get install -y -qq --reinstall /dunlin.deb >"$root/log" 2>&1 ||
    fail "it cannot be installed again"
grep -q 'changed by the administrator' "$root/etc/dunlin/dunlin.toml" || fail "the configuration was replaced"
start
[ "$(inside dunlin sub -t demo/kept -C 1 -W 30)" = first ] || fail "the retained message is gone"
stop

echo "== remove, purge"
DEBIAN_FRONTEND=noninteractive inside apt-get remove -y -qq dunlin >/dev/null 2>&1
[ -d "$root/var/lib/dunlin" ] || fail "removing took the data"
DEBIAN_FRONTEND=noninteractive inside apt-get purge -y -qq dunlin >/dev/null 2>&1
[ ! -d "$root/var/lib/dunlin" ] || fail "purging left the data"
echo "package: ok"
