"""The tables of `acl.sh`: the same broker with and without a password file and an
access list, cells in turn; medians of the ratios of neighbours."""

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from brokers import Dunlin

QUICK = "--quick" in sys.argv
REPEAT = 1 if QUICK else 9
# At a fixed low rate single pairs scatter three times as widely as at saturation.
REPEAT_SPARSE = 1 if QUICK else 21
SECONDS = 1 if QUICK else 3
USERS = 10_000
# Filters of the session that a reload compares with the list.
FILTERS, PER_PACKET = 100_000, 1_000
COST_MAX = 1.03

BINARY = os.path.abspath(os.environ["DUNLIN"])
# In the middle of the files.
USER, PASSWORD = f"user-{USERS // 2}", "bench"

TEN = ["--pubs", "10", "--subs", "10"]
CASES = [
    ("QoS 0, ten pairs", REPEAT, TEN),
    ("QoS 1, ten pairs", REPEAT, TEN + ["--qos", "1"]),
    ("QoS 0, 1,000 publishers at 5 messages/s", REPEAT_SPARSE, ["--pubs", "1000", "--subs", "10", "--pattern", "fan-in", "--rate", "5000"]),
]


def files():
    """A password file, whose users have one password, and an access list with four
    lines for each of them and some for all."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "passwords")
        subprocess.run([BINARY, "passwd", "-b", path, USER, PASSWORD], check=True, capture_output=True)
        with open(path) as file:
            head, line = file.read().split("\n")[:2]
    secret = line.split(":", 1)[1]
    names = [f"user-{number}" for number in range(USERS)]
    lines = ["topic read public/#"]
    for name in names:
        lines += [f"user {name}", f"topic readwrite home/{name}/#", "topic read news/+/today"]
        lines += [f"topic deny home/{name}/vault/#", "topic readwrite bench/#"]
    lines += [f"pattern write devices/%c/state-{number}" for number in range(10)]
    passwords = "".join(f"{name}:{secret}\n" for name in names)
    return {"passwords": f"{head}\n{passwords}", "acl": "\n".join(lines) + "\n"}


def bench(broker, options):
    """CPU of the broker for one delivered message, in microseconds."""
    command = [BINARY, "bench", "--url", broker.urls["tcp"], "--json", "-", "--quiet"]
    command += ["--broker-pid", str(broker.pid), "--warmup", "1", "--duration", str(SECONDS)]
    command += ["--user", USER, "--password", PASSWORD]
    result = subprocess.run(command + options, capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{broker.name} {options}: {result.stderr.strip()}")
    report = json.loads(result.stdout)
    rate = report["broker"]["delivered_per_cpu_second"]
    if not rate:
        raise RuntimeError(f"{broker.name} {options}: nothing was delivered")
    return 1e6 / rate


def compare(title, repeat, options, without, with_files):
    """A row; whether it is within the goal."""
    pairs = []
    for turn in range(repeat):
        order = (without, with_files) if turn % 2 == 0 else (with_files, without)
        cost = {broker.name: bench(broker, options) for broker in order}
        pairs.append((cost[without.name], cost[with_files.name]))
        print(f"  {title}: {pairs[-1][0]:.3f} {pairs[-1][1]:.3f}", file=sys.stderr, flush=True)
    ratio = statistics.median(after / before for before, after in pairs)
    before, after = (statistics.median(column) for column in zip(*pairs))
    ratios = sorted(after / before for before, after in pairs)
    print(f"| {title} | {before:.3f} | {after:.3f} | {ratio:.3f} | {ratios[0]:.3f}-{ratios[-1]:.3f} |")
    return ratio <= COST_MAX


def length(number):
    """A variable byte integer."""
    out = b""
    while True:
        number, low = divmod(number, 128)
        out += bytes([low | (0x80 if number else 0)])
        if not number:
            return out


def text(value):
    raw = value.encode()
    return len(raw).to_bytes(2, "big") + raw


def packet(first, body):
    return bytes([first]) + length(len(body)) + body


def answer(peer):
    """The next packet."""
    first, size, shift = peer.recv(1)[0], 0, 0
    while True:
        byte = peer.recv(1)[0]
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    body = b""
    while len(body) < size:
        body += peer.recv(size - len(body))
    return first, body


def connect(broker, client_id):
    host, port = broker.urls["tcp"].split("//")[1].rsplit(":", 1)
    peer = socket.create_connection((host, int(port)), 30)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    credentials = text(client_id) + text(USER) + text(PASSWORD)
    peer.sendall(packet(0x10, text("MQTT") + b"\x05\xc2\x00\x00\x00" + credentials))
    assert answer(peer)[0] == 0x20
    return peer


def cpu_ms(pid):
    with open(f"/proc/{pid}/schedstat") as file:
        mine = int(file.read().split()[0])
    for thread in os.listdir(f"/proc/{pid}/task"):
        if int(thread) != pid:
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                mine += int(file.read().split()[0])
    return mine / 1e6


def ping(peer):
    begun = time.monotonic()
    peer.sendall(b"\xc0\x00")
    assert answer(peer)[0] == 0xD0
    return (time.monotonic() - begun) * 1e3


def reload(broker):
    """What a reload takes with one session that has many subscriptions: CPU, and how
    long another client waits at most."""
    peer, other = connect(broker, "many"), connect(broker, "other")
    filters = [f"home/{USER}/{n}/x" if n % 2 else f"bench/{n}/+/state" for n in range(FILTERS)]
    for start in range(0, FILTERS, PER_PACKET):
        some = filters[start : start + PER_PACKET]
        peer.sendall(packet(0x82, b"\x00\x01\x00" + b"".join(text(f) + b"\x00" for f in some)))
        first, body = answer(peer)
        assert first == 0x90 and set(body[3:]) == {0}, body[:20]
    costs, waits, idle = [], [], [ping(other) for _ in range(50)]
    for _ in range(1 if QUICK else 7):
        time.sleep(0.5)
        before = cpu_ms(broker.pid)
        os.kill(broker.pid, signal.SIGHUP)
        end, most = time.monotonic() + 1.0, 0.0
        while time.monotonic() < end:
            most = max(most, ping(other))
            time.sleep(0.005)
        costs.append(cpu_ms(broker.pid) - before)
        waits.append(most)
    time.sleep(0.5)
    # The same second without a reload.
    before, end = cpu_ms(broker.pid), time.monotonic() + 1.0
    while time.monotonic() < end:
        ping(other)
        time.sleep(0.005)
    quiet = cpu_ms(broker.pid) - before
    cost, wait = statistics.median(costs) - quiet, statistics.median(waits)
    print(f"\nReload with {USERS:,} users, {4 * USERS + 11:,} lines and a session with")
    print(f"{FILTERS:,} subscriptions: {cost:.0f} ms of CPU in all (files read and session compared);")
    print(f"another client on that shard waited at most {wait:.0f} ms (median of {len(waits)}), {statistics.median(idle):.2f} ms without.")


def main():
    load = os.getloadavg()[0]
    made = files()
    auth = 'password_file = "passwords"\nacl_file = "acl"\nanonymous = "never"\n'
    with Dunlin(BINARY, name="without") as without:
        with Dunlin(BINARY, name="with", files=made, auth=auth) as with_files:
            print(f"CPU of the broker for a delivered message, in µs; {USERS:,} users,")
            print(f"{4 * USERS + 11:,} lines; median of {REPEAT} × {SECONDS} s in turn ({REPEAT_SPARSE} in the last row); load {load:.1f} at the start.")
            print("\n| case | without | with | ratio | from-to |\n|---|---:|---:|---:|---:|")
            met = [compare(title, repeat, options, without, with_files) for title, repeat, options in CASES]
            reload(with_files)
    print(f"\nGoal: a ratio of at most {COST_MAX}: {'met' if all(met) else '**missed**'}.")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
