"""Every scenario of the small client against servers by others; with --book, the
table goes into the book. See scripts/mcu/interop.sh.
"""

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from peers import ROOT, TARGET, Server, certificate

BUILD_SECONDS = 3600
SCENARIO_SECONDS = 90
PAGE = ROOT / "docs/book/src/mcu-interop.md"
SCENARIOS = {
    "handshake": "handshake, with both providers",
    "retry": "Retry",
    "resume": "resumption",
    "early": "0-RTT",
    "group": "HelloRetryRequest",
    "chacha": "ChaCha20-Poly1305",
    "keys": "key updates",
    "loss": "10 % loss each way",
    "rebind": "rebindings by a NAT, of 3",
    "migrate": "migrations, of 3",
}


@dataclass
class Peer:
    name: str
    version: str
    command: list[str]
    missing: str = ""
    # Scenarios that the server has no part in, and why.
    without: dict[str, str] | None = None


def built(folder: str, command: list[str]) -> str:
    """Builds a peer; empty, or why it is not there."""
    print(f"mcu-interop: building {' '.join(command[:2])} in {folder}", flush=True)
    try:
        done = subprocess.run(command, cwd=ROOT / folder, timeout=BUILD_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not built: {error}"
    return "" if done.returncode == 0 else "does not build here"


def crate(name: str, feature: str, without: dict[str, str] | None = None) -> Peer:
    lock = (ROOT / "interop/mcu-peers/Cargo.lock").read_text()
    found = re.search(rf'name = "{name}"\nversion = "([^"]+)"', lock)
    target = TARGET / "mcu-peers"
    command = ["cargo", "build", "--quiet", "--locked", "--features", feature]
    missing = built("interop/mcu-peers", [*command, "--target-dir", str(target)])
    program = [str(target / "debug" / f"{feature}-echo")]
    return Peer(name, found[1] if found else "", program, missing, without)


def quinn() -> Peer:
    return crate("quinn", "quinn")


def s2n() -> Peer:
    # s2n-quic-rustls 0.83, Session::poll_impl: the handshake's completion is
    # reported before rustls is asked for what follows it, and then it is not asked.
    # s2n-quic-transport 0.83, handle_zero_rtt_packet: "when we support zero-rtt".
    without = {
        "resume": "its session over rustls ends before the tickets are sent",
        "early": "it drops 0-RTT packets unread",
        "group": "its groups cannot be set",
        "chacha": "it chooses AES, and its suites cannot be set",
    }
    return crate("s2n-quic", "s2n", without)


def quiche() -> Peer:
    if shutil.which("cmake") is None or shutil.which("c++") is None:
        return Peer("quiche", "", [], "needs cmake and a C++ compiler for BoringSSL")
    return crate("quiche", "quiche", {"group": "its groups cannot be set"})


def aioquic() -> Peer:
    script = str(ROOT / "scripts/mcu/aioquic_echo.py")
    python = ROOT / "target/venv/bin/python"
    if not python.exists():
        return Peer("aioquic", "", [], "no target/venv; scripts/setup-test.sh makes it")
    ask = [str(python), "-c", "import aioquic; print(aioquic.__version__)"]
    found = subprocess.run(ask, check=False, capture_output=True, text=True)
    missing = "" if found.returncode == 0 else "not in target/venv"
    without = {"group": "it never asks for another one"}
    return Peer("aioquic", found.stdout.strip(), [str(python), "-B", script], missing, without)


def quic_go() -> Peer:
    go = shutil.which("go", path=os.environ.get("PATH", "") + ":/usr/local/go/bin")
    if go is None:
        return Peer("quic-go", "", [], "go is not installed")
    program = TARGET / "quic-go-echo"
    missing = built("interop/quic-go", [go, "build", "-mod=readonly", "-o", str(program), "./echo"])
    modules = (ROOT / "interop/quic-go/go.mod").read_text()
    found = re.search(r"quic-go/quic-go v(\S+)", modules)
    return Peer("quic-go", found[1] if found else "", [str(program)], missing)


PEERS = {"quinn": quinn, "s2n-quic": s2n, "quiche": quiche, "aioquic": aioquic, "quic-go": quic_go}


def scenario(peer: Peer, name: str, client: str, credentials: tuple[Path, Path, str]) -> str:
    """What came of it: begins with `ok`, `failed` or `none`."""
    if peer.without and name in peer.without:
        return f"none {peer.without[name]}"
    pem, key, point = credentials
    command = [*peer.command, str(pem), str(key)]
    try:
        with Server(command + ([f"--{name}"] if name in ("retry", "group", "chacha") else [])) as server:
            words = [client, str(server.port), point, name]
            done = subprocess.run(
                words, timeout=SCENARIO_SECONDS, check=False, capture_output=True, text=True
            )
            return done.stdout.strip() or f"failed status {done.returncode}"
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return f"failed {error}"


def cell(result: str) -> str:
    word, _, rest = result.partition(" ")
    if rest.startswith("moves"):
        return rest.removeprefix("moves ")
    return {"ok": "yes", "none": "–"}.get(word, f"**no**: {rest}")


def book(results: dict[str, dict[str, str]], versions: dict[str, str]) -> None:
    names = list(results)
    lines = ["| | " + " | ".join(f"{name} {versions[name]}" for name in names) + " |"]
    lines += ["|---" * (len(names) + 1) + "|"]
    for key, title in SCENARIOS.items():
        cells = [cell(results[name].get(key, "none")) for name in names]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    notes = []
    for name in names:
        for key, said in results[name].items():
            if said.startswith("none ") and key in SCENARIOS:
                notes.append(f"- {name} has no {SCENARIOS[key]}: {said[5:]}.")
        if said := results[name].get("loss", ""):
            notes.append(f"- {name}, loss: {said.removeprefix('ok ')}.")
    text = PAGE.read_text()
    head, _, rest = text.partition("<!-- table -->\n")
    _, end, tail = rest.partition("<!-- end of table -->")
    day = datetime.date.today().isoformat()
    made = "\n".join([f"Run on {day}.", "", *lines, "", *notes, ""])
    PAGE.write_text(head + "<!-- table -->\n" + made + end + tail)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("client")
    parser.add_argument("--peer", action="append", choices=PEERS)
    parser.add_argument("--only", action="append", choices=SCENARIOS)
    parser.add_argument("--book", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, dict[str, str]] = {}
    versions: dict[str, str] = {}
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        credentials = certificate(Path(folder))
        for name in arguments.peer or PEERS:
            peer = PEERS[name]()
            if peer.missing:
                print(f"mcu-interop: skipped: {name}: {peer.missing}", file=sys.stderr)
                continue
            versions[name], results[name] = peer.version, {}
            for what in arguments.only or SCENARIOS:
                said = scenario(peer, what, arguments.client, credentials)
                results[name][what] = said
                bad += said.startswith("failed")
                print(f"mcu-interop: {name} {what}: {said}", flush=True)
    (TARGET / "mcu-interop.json").write_text(json.dumps(results, indent=2) + "\n")
    if arguments.book:
        book(results, versions)
    return 1 if bad else 0


sys.exit(main())
