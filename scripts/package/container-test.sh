#!/usr/bin/env bash
# Unpacks a container image and does in it what a container engine does: runs the broker
# as the image's user, in a root that has only the image, in a
# network of its own; asks its health check; publishes, restarts, receives; finds hosts by
# /etc/hosts and by DNS.
#
#   scripts/package/container-test.sh [ARCHIVE]
#
# Needs root. skopeo and umoci, where they are there, read the archive as well.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
archive=${1:-$(ls -t "$target"/container/dunlin-*.tar 2>/dev/null | head -1)}
if [ ! -f "$archive" ]; then
    echo 'container-test.sh: there is no image; make one with: make container' >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo 'SKIPPED: container-test.sh needs root'
    exit 0
fi
if [ -z "${CONTAINER_INSIDE:-}" ]; then
    CONTAINER_INSIDE=yes exec unshare --net --mount --pid --fork "$0" "$archive"
fi
readonly MB_MAX=30
work=$(mktemp -d)
broker=
names=
end() {
    [ -z "$broker" ] || kill "$broker" 2>/dev/null || true
    [ -z "$names" ] || kill "$names" 2>/dev/null || true
    umount "$work/root/proc" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
fail() {
    echo "container-test.sh: $1" >&2
    [ ! -f "$work/log" ] || cat "$work/log" >&2
    exit 1
}
ip link set lo up

echo '== the archive'
if command -v skopeo >/dev/null; then
    skopeo inspect "oci-archive:$archive" >/dev/null || fail 'skopeo does not read it'
fi
mkdir "$work/image" "$work/root"
tar -xf "$archive" -C "$work/image"
blob() { echo "$work/image/blobs/sha256/${1#sha256:}"; }
field() { python3 -c 'import json,sys; print(eval("it" + sys.argv[2], {"it": json.load(open(sys.argv[1]))}))' "$@"; }
for file in "$work"/image/blobs/sha256/*; do
    [ "$(sha256sum <"$file" | cut -d' ' -f1)" = "$(basename "$file")" ] || fail "$file is not what it is called"
done
manifest=$(blob "$(field "$work/image/index.json" '["manifests"][0]["digest"]')")
config=$(blob "$(field "$manifest" '["config"]["digest"]')")
layer=$(blob "$(field "$manifest" '["layers"][0]["digest"]')")
tar -xzf "$layer" -C "$work/root"
if command -v umoci >/dev/null; then
    name=$(field "$work/image/index.json" '["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"]')
    umoci unpack --image "$work/image:$name" "$work/bundle" >/dev/null 2>&1 || fail 'umoci does not unpack it'
    rm -rf "$work/bundle"
fi
bytes=$(du --bytes --summarize "$work/root" | cut -f1)
echo "unpacked: $((bytes / 1000000)) MB"
[ "$bytes" -lt $((MB_MAX * 1000000)) ] || fail "it has more than $MB_MAX MB"
! ldd "$work/root/usr/bin/dunlin" 2>/dev/null | grep -q '=>' || fail 'the program is not static'

user=$(field "$config" '["config"]["User"]')
case $user in 0* | root* | '') fail 'it would run as root' ;; esac
mapfile -t command < <(field "$config" '["config"]["Entrypoint"] + it["config"]["Cmd"]' | tr -d "[]'," | tr ' ' '\n')
mapfile -t health < <(field "$config" '["config"]["Healthcheck"]["Test"][1:]' | tr -d "[]'," | tr ' ' '\n')
# As engines do.
echo '127.0.0.1 localhost' >"$work/root/etc/hosts"
mkdir "$work/root/proc"
mount -t proc proc "$work/root/proc"
inside() { chroot --userspec="$user" "$work/root" "$@"; }
start() {
    : >"$work/log"
    chroot --userspec="$user" "$work/root" "${command[@]}" >>"$work/log" 2>&1 &
    broker=$!
    for _ in $(seq 300); do
        ! inside "${health[@]}" >/dev/null 2>&1 || return 0
        kill -0 "$broker" 2>/dev/null || fail 'the broker has ended'
        sleep 0.1
    done
    fail 'the health check does not succeed'
}
stop() {
    kill "$broker"
    wait "$broker" || fail 'the broker did not stop as it should'
    broker=
}

echo "== run ${command[*]} as $user"
! inside "${health[@]}" >/dev/null 2>&1 || fail 'it is healthy before it runs'
start
[ "$(stat -c %u "$work/root/proc/$broker")" = "${user%%:*}" ] || fail 'it runs as another user'
dunlin=/usr/bin/dunlin
inside $dunlin pub -t demo/kept -m first -r -q 1
[ "$(inside $dunlin sub -t demo/kept -C 1 -W 30)" = first ] || fail 'the message did not arrive'
[ "$(inside $dunlin sub --url quic://localhost --ca /var/lib/dunlin/certs/ca.pem -t demo/kept -C 1 -W 30)" = first ] ||
    fail 'nothing arrived over QUIC'
stop
echo '== run it again on the same volume'
start
[ "$(inside $dunlin sub -t demo/kept -C 1 -W 30)" = first ] || fail 'the retained message is gone'

echo '== names by DNS'
echo 'nameserver 127.0.0.1' >"$work/root/etc/resolv.conf"
python3 -B scripts/package/names.py plant.example 127.0.0.1 >"$work/names" &
names=$!
for _ in $(seq 100); do
    [ ! -s "$work/names" ] || break
    sleep 0.1
done
[ "$(inside $dunlin sub --url mqtt://plant.example -t demo/kept -C 1 -W 30)" = first ] ||
    fail 'a host that DNS knows is not found'
said=$(inside $dunlin sub --url mqtt://nowhere.example -t demo/kept -C 1 -W 30 2>&1) &&
    fail 'a host that does not exist is found'
case $said in *nowhere.example*) ;; *) fail "a host that does not exist: $said" ;; esac
stop
echo 'container: ok'
