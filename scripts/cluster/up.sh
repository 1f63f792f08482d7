#!/usr/bin/env bash
# Three nodes of Dunlin on this machine, which share a store on three servers of NATS, for
# trying a cluster. Prints how to connect; Ctrl-C ends all of it and removes what it wrote.
#
#   scripts/cluster/up.sh [FOLDER]
#
# UP_COMMAND  what to run when all of it serves, in the place of waiting; it has UP_FOLDER
# DUNLIN  the program (default: target/debug/dunlin)
# NATS    nats-server 2.15 or later (default: that of scripts/setup-test.sh, or PATH)
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
DUNLIN=${DUNLIN:-$target/debug/dunlin}
NATS=${NATS:-$target/peers/bin/nats-server}
[[ -x $NATS ]] || NATS=$(command -v nats-server) || {
    echo "up.sh: no nats-server: scripts/setup-test.sh installs it" >&2
    exit 1
}
[[ -x $DUNLIN ]] || { echo "up.sh: $DUNLIN is not there: cargo build -p dunlin" >&2; exit 1; }
folder=${1:-}
if [[ -z $folder ]]; then
    folder=$(mktemp -d)
    remove=yes
fi
mkdir -p "$folder"
processes=()
end() {
    trap - EXIT
    for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done
    wait || true
    if [[ ${remove:-} == yes ]]; then rm -rf "$folder"; fi
}
trap end EXIT
trap 'exit 0' INT TERM

routes='["nats-route://127.0.0.1:16222", "nats-route://127.0.0.1:16223", "nats-route://127.0.0.1:16224"]'
urls='["nats://dunlin:d@127.0.0.1:14222", "nats://dunlin:d@127.0.0.1:14223", "nats://dunlin:d@127.0.0.1:14224"]'
system=${urls//dunlin:d/sys:s}
for n in 1 2 3; do
    cat > "$folder/nats-$n.conf" <<END
server_name: n$n
listen: "127.0.0.1:$((14221 + n))"
jetstream { store_dir: "$folder/nats-$n", sync_interval: always }
cluster { name: dunlin, listen: "127.0.0.1:$((16221 + n))", routes: $routes }
accounts {
  SYS { users: [{ user: sys, password: s }] }
  DUNLIN { jetstream: enabled, users: [{ user: dunlin, password: d }] }
}
system_account: SYS
END
    "$NATS" -c "$folder/nats-$n.conf" > "$folder/nats-$n.log" 2>&1 &
    processes+=($!)
done
[[ -f $folder/cluster.key ]] || (umask 077; head -c 32 /dev/urandom | base64 > "$folder/cluster.key")
[[ -d $folder/certs ]] || "$DUNLIN" cert init "$folder/certs" > "$folder/certs.log"
port() { echo $((10883 + 1000 * $1)); }
for n in 1 2 3; do
    cat > "$folder/node-$n.toml" <<END
data_dir = "$folder/node-$n"
[[listener]]
transport = "tcp"
address = "127.0.0.1:$(port $n)"
[[listener]]
transport = "quic"
address = "127.0.0.1:$(port $n)"
tls = { cert = "$folder/certs/server.pem", key = "$folder/certs/server.key" }
[store.nats]
urls = $urls
system_urls = $system
[cluster]
name = "node-$n"
secret_file = "$folder/cluster.key"
END
    "$DUNLIN" broker --config "$folder/node-$n.toml" > "$folder/node-$n.log" 2>&1 &
    processes+=($!)
done
echo "three servers of NATS and three nodes begin; their logs are in $folder"
for n in 1 2 3; do
    for _ in $(seq 600); do
        (exec 3<> "/dev/tcp/127.0.0.1/$(port $n)") 2>/dev/null && continue 2
        kill -0 "${processes[$((n + 2))]}" 2>/dev/null || break
        sleep 0.1
    done
    echo "up.sh: node $n does not serve; the end of its log:" >&2
    tail -n 5 "$folder/node-$n.log" >&2
    exit 1
done
cat <<END
node 1 at 127.0.0.1:$(port 1), node 2 at 127.0.0.1:$(port 2), node 3 at 127.0.0.1:$(port 3), over TCP and QUIC
try it, in two other terminals:
  $DUNLIN sub --url mqtt://127.0.0.1:$(port 3) -t 'demo/#' -v
  $DUNLIN pub --url mqtt://127.0.0.1:$(port 1) -t demo/hello -m hi -q 1
over QUIC with --url quic://localhost:$(port 1) --cafile $folder/certs/ca.pem
processes of the nodes, to kill one: ${processes[*]:3}
END
if [[ -n ${UP_COMMAND:-} ]]; then
    UP_FOLDER=$folder bash -c "$UP_COMMAND"
else
    wait
fi
