#!/usr/bin/env bash
# HAProxy in front of the broker: with every version of its PROXY protocol the broker
# sees the client's address, over TCP, TLS and WebSocket (X-Forwarded-For). Prints,
# last, `N passed, N failed, N skipped`.
#
#   DUNLIN=target/debug/dunlin scripts/interop/proxy.sh
#
# What is not installed is skipped in words; scripts/setup-test.sh installs it.
set -euo pipefail
cd "$(dirname "$0")/../.."
dunlin=$(realpath "${DUNLIN:-target/debug/dunlin}")
haproxy=${HAPROXY:-$(command -v haproxy || command -v /usr/sbin/haproxy || true)}
. scripts/skip.sh
[ -n "$haproxy" ] || skip proxy 'no haproxy'

dir=$(mktemp -d)
pids=()
clean() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap clean EXIT

# Ports that are free now.
read -ra ports < <(python3 -B scripts/ports.py 11)
metrics=127.0.0.1:${ports[10]}

# A row is: name, transport of the broker, its keys, what HAProxy adds, its mode.
rows=(
    'v1 tcp proxy_protocol="v1" send-proxy tcp'
    'v2 tcp proxy_protocol="v2" send-proxy-v2 tcp'
    'any tcp proxy_protocol="any" send-proxy-v2-ssl-cn tcp'
    'tls tls proxy_protocol="v2" send-proxy-v2 tcp'
    'http ws forwarded="x-forwarded-for" - http'
)

{
    printf '[metrics]\naddress = "%s"\n[store]\ndurability = "memory"\n' "$metrics"
    for i in "${!rows[@]}"; do
        read -r _ transport key _ _ <<<"${rows[i]}"
        printf '[[listener]]\ntransport = "%s"\naddress = "127.0.0.1:%s"\n' \
            "$transport" "${ports[i]}"
        printf 'anonymous = "always"\n%s\ntrusted = ["127.0.0.1"]\n' "${key/=/ = }"
    done
} >"$dir/dunlin.toml"
{
    printf 'defaults\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n'
    for i in "${!rows[@]}"; do
        read -r name _ _ send mode <<<"${rows[i]}"
        printf 'listen %s\n  mode %s\n  bind 127.0.0.1:%s\n' "$name" "$mode" "${ports[i + 5]}"
        [ "$mode" = http ] && printf '  option forwardfor\n'
        printf '  server dunlin 127.0.0.1:%s %s\n' "${ports[i]}" "${send#-}"
    done
} >"$dir/haproxy.cfg"

(cd "$dir" && exec "$dunlin" broker --config dunlin.toml >broker.log 2>&1) &
pids+=($!)
"$haproxy" -db -f "$dir/haproxy.cfg" >"$dir/haproxy.log" 2>&1 &
pids+=($!)

ask() {
    python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read().decode())' \
        "http://$metrics/$1" 2>/dev/null
}
for _ in $(seq 50); do
    ask readyz >/dev/null && break
    sleep 0.1
done

passed=0 failed=0
for i in "${!rows[@]}"; do
    read -r name transport _ _ _ <<<"${rows[i]}"
    flags=()
    case $transport in
    tcp) url=mqtt://127.0.0.1:${ports[i + 5]} ;;
    tls) url=mqtts://localhost:${ports[i + 5]} flags=(--cafile "$dir/dunlin-data/certs/ca.pem") ;;
    ws) url=ws://127.0.0.1:${ports[i + 5]}/mqtt ;;
    esac
    # From an address that the proxy does not have.
    "$dunlin" sub --url "$url" "${flags[@]}" -A 127.0.0.77 -i "$name" -t t \
        >"$dir/$name.log" 2>&1 &
    pids+=($!)
    seen=
    for _ in $(seq 50); do
        seen=$(ask "connections/$name" | grep '"address"' || true)
        [ -n "$seen" ] && break
        sleep 0.1
    done
    if [[ $seen == *'"127.0.0.77:'* ]]; then
        passed=$((passed + 1))
        echo "proxy: $name: ok"
    else
        failed=$((failed + 1))
        echo "proxy: $name: the broker saw ${seen:-nothing}"
        tail -3 "$dir/$name.log" "$dir/broker.log" "$dir/haproxy.log"
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
