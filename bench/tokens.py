"""The table `tokens` of `operate.sh`: CPU of the broker for a connection over TLS that
ends after CONNACK: without a password, with a token of its own (ES256) that the broker has
not seen, and with that token once more, as when a client reconnects."""

import base64
import json
import os
import socket
import ssl
import statistics
import subprocess
import sys
import time

from brokers import Dunlin

# Connections of one cell; each has another token.
CONNECTS = 300
COST_MAX = 1.3
AUDIENCE = "bench"
KEY_FILE = "token.pem"
AUTH = f'jwt = {{ key_file = "{KEY_FILE}", algorithms = ["ES256"], audience = ["{AUDIENCE}"] }}'


def openssl(*arguments, text=b""):
    command = ["openssl", *arguments]
    return subprocess.run(command, input=text, capture_output=True, check=True).stdout


def url64(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def integers(signature):
    """The two numbers of an ECDSA signature in DER, 32 bytes each (RFC 7518, 3.4)."""
    raw, rest = b"", signature[2:]
    for _ in range(2):
        length = rest[1]
        raw += rest[2:2 + length].lstrip(b"\x00").rjust(32, b"\x00")
        rest = rest[2 + length:]
    return raw


def tokens(folder):
    """The public key in PEM, and a token for each connection of a cell."""
    key = os.path.join(folder, "key.pem")
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    public = openssl("ec", "-in", key, "-pubout").decode()
    head = url64(json.dumps({"alg": "ES256", "typ": "JWT"}).encode())
    signed = []
    for number in range(CONNECTS):
        claims = {"sub": f"device-{number}", "aud": AUDIENCE, "exp": int(time.time()) + 3600}
        text = head + b"." + url64(json.dumps(claims).encode())
        signed.append(text + b"." + url64(integers(openssl("dgst", "-sha256", "-sign", key, text=text))))
    return public, signed


def field(raw):
    return len(raw).to_bytes(2, "big") + raw


def connect_packet(number, token):
    flags = 0xC2 if token else 0x02
    body = field(b"MQTT") + b"\x05" + bytes([flags]) + b"\x00\x00\x00" + field(b"device-%d" % number)
    if token:
        body += field(b"token") + field(token)
    length, rest = b"", len(body)
    while True:
        rest, digit = divmod(rest, 128)
        length += bytes([digit | (0x80 if rest else 0)])
        if not rest:
            return b"\x10" + length + body


def cpu_ns(pid):
    """CPU of all threads of a process."""
    total, tasks = 0, f"/proc/{pid}/task"
    for task in os.listdir(tasks):
        with open(f"{tasks}/{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total


def cell(broker, trust, signed):
    """Microseconds of the broker's CPU for a connection."""
    host, port = broker.urls["tls"].split("//")[1].rsplit(":", 1)
    before = cpu_ns(broker.pid)
    for number in range(CONNECTS):
        token = signed[number] if signed else b""
        with socket.create_connection((host, int(port)), 30) as raw:
            with trust.wrap_socket(raw, server_hostname="localhost") as peer:
                peer.sendall(connect_packet(number, token))
                answer = peer.recv(64)
                if answer[:1] != b"\x20" or answer[3] != 0:
                    raise RuntimeError(f"client {number} is refused: {answer!r}")
                peer.sendall(b"\xe0\x00")
    return (cpu_ns(broker.pid) - before) / CONNECTS / 1000


def forget(broker):
    """A reload, after which the broker knows no token that it has verified."""
    config = os.path.join(broker.dir, "dunlin.toml")
    command = [broker.binary, "ctl", "-c", config, "reload"]
    done = subprocess.run(command, cwd=broker.dir, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"reload: {done.stderr}")


def table(binary, folder, repeat):
    """Prints it; whether it is within the goal."""
    public, signed = tokens(folder)
    with Dunlin(binary) as plain, Dunlin(binary, name="tokens", files={KEY_FILE: public}, auth=AUTH) as asked:
        trust = {broker: ssl.create_default_context(cafile=broker.ca) for broker in (plain, asked)}
        rows = []
        for turn in range(repeat):
            forget(asked)
            cells = {}
            # A token comes again only after it has come.
            kinds = [("without", plain, None), ("new", asked, signed), ("again", asked, signed)]
            for kind, broker, those in kinds if turn % 2 == 0 else kinds[1:] + kinds[:1]:
                cells[kind] = cell(broker, trust[broker], those)
            rows.append([cells[kind] for kind, _, _ in kinds])
            print("  tokens: " + " ".join(f"{it:.0f}" for it in rows[-1]), file=sys.stderr, flush=True)
    print(f"\n{CONNECTS} connections over TLS 1.3, one after the other, full handshakes; {repeat} times.\n")
    print("| | CPU of the broker a connection, µs | ratio | range |")
    print("|---|--:|--:|--:|")
    good = True
    for at, name in enumerate(["without a password", "a token (ES256)", "the same token again"]):
        ratios = [row[at] / row[0] for row in rows]
        ratio = statistics.median(ratios)
        cost = statistics.median(row[at] for row in rows)
        print(f"| {name} | {cost:.0f} | {ratio:.2f} | {min(ratios):.2f}-{max(ratios):.2f} |", flush=True)
        good = good and ratio <= COST_MAX
    return good
