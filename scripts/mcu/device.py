"""The device under QEMU: its page of settings, its start, and what it tells.

The image tells what happens by lines of a number and a value in hexadecimal;
NOTES are those of `Note` in mini/dunlin-mini-device/src/board.rs.
"""

import json
import os
import queue
import socket
import struct
import subprocess
import tempfile
import threading
import time

NOTES = {
    1: "wake",
    2: "connect",
    3: "connected",
    4: "reading",
    5: "published",
    6: "command",
    7: "ticket",
    8: "sleep",
    9: "failed",
    10: "moved",
    11: "subscribed",
    12: "early",
    13: "no-neighbour",
    14: "no-settings",
    15: "boot",
}
# Where the image looks for its settings, see mini/firmware/image/src/pages.rs.
SETTINGS_ADDRESS = 0x0030_0000
# The network that QEMU makes: the host is the gateway.
GATEWAY = "10.0.2.2"
DEVICE = "10.0.2.15"
OTHER = "10.0.2.77"
NO_ADDRESS = "0.0.0.0"
# Where memory begins, and what the stack's part is filled with, to see later how
# far it came.
RAM = 0x2000_0000
PAINT = 0xA5
# Longest time that anything may take on a slow machine.
PATIENCE = 60.0


def address(text):
    return bytes(int(part) for part in text.split("."))


def fnv(contents):
    check = 0x811C9DC5
    for byte in contents:
        check = ((check ^ byte) * 0x01000193) & 0xFFFFFFFF
    return check


def page(contents):
    """A page of flash: length, checksum, contents."""
    return struct.pack(">HI", len(contents), fnv(contents)) + contents


def public_key(certificate):
    """The 65 bytes of a certificate's P-256 key."""
    show = ["openssl", "x509", "-in", certificate, "-noout", "-pubkey"]
    pem = subprocess.run(show, check=True, capture_output=True).stdout
    convert = ["openssl", "pkey", "-pubin", "-outform", "DER"]
    der = subprocess.run(convert, input=pem, check=True, capture_output=True).stdout
    key = der[-65:]
    if key[0] != 4 or len(der) != 91:
        raise ValueError(f"{certificate}: not a P-256 key")
    return key


def settings(server, key, **changes):
    """The page of settings for a server's (address, port) and public key. An image
    with smoltcp asks for an address (DHCP) if `ip` is NO_ADDRESS."""
    with_defaults = {
        "mac": bytes.fromhex("525400123456"),
        "ip": DEVICE,
        "other": OTHER,
        "mask": "255.255.255.0",
        "gateway": GATEWAY,
        "seed": os.urandom(32),
        "listen_ms": 300,
        "gap_ms": 200,
        "readings": 1,
        "wakes": 2,
        "sleep_ms": 1000,
        "name": b"localhost",
        "client_id": b"mcu-1",
        "topic": b"mcu/1/up",
        "filter": b"mcu/1/down",
        "user": b"",
        "password": b"",
        # Certificates of the device and their key, for an image that shows them.
        "identity": None,
    } | changes
    s = with_defaults
    contents = s["mac"]
    for field in ("ip", "other", "mask", "gateway"):
        contents += address(s[field])
    contents += address(server[0]) + struct.pack(">H", server[1]) + s["seed"] + key
    numbers = (s["listen_ms"], s["gap_ms"], s["readings"], s["wakes"], s["sleep_ms"])
    contents += struct.pack(">HHHHI", *numbers)
    for field in ("name", "client_id", "topic", "filter", "user", "password"):
        contents += bytes([len(s[field])]) + s[field]
    if s["identity"]:
        certificates, secret = s["identity"]
        contents += struct.pack(">H", len(certificates)) + certificates + secret
    return page(contents)


class Device:
    """A running device. `notes` is everything that it reported, as (seconds, name,
    value)."""

    def __init__(self, image, page_of_settings, network=None, more=(), show=True):
        self.show = show
        self.notes = []
        self.started = time.monotonic()
        self.fresh = queue.Queue()
        self.folder = tempfile.TemporaryDirectory()
        self.static = symbol(image, "__sheap") - RAM
        self.room = symbol(image, "_stack_start") - RAM - self.static
        paint = self.place("paint", bytes([PAINT]) * self.room)
        file = self.place("settings", page_of_settings)
        self.control = os.path.join(self.folder.name, "control")
        command = ["qemu-system-arm", "-M", "mps2-an386", "-display", "none"]
        command += ["-serial", "stdio", "-monitor", "none"]
        command += ["-semihosting-config", "enable=on,target=native"]
        command += ["-nic", network or "user,model=lan9118", "-kernel", image]
        command += ["-device", f"loader,file={file},addr={SETTINGS_ADDRESS:#x},force-raw=on"]
        command += ["-device", f"loader,file={paint},addr={RAM + self.static:#x},force-raw=on"]
        command += ["-qmp", f"unix:{self.control},server=on,wait=off"]
        self.process = subprocess.Popen(
            command + list(more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # The emulator tells there that it was ended, and of lost datagrams.
            stderr=subprocess.DEVNULL,
            text=True,
        )
        threading.Thread(target=self.read, daemon=True).start()

    def place(self, name, contents):
        """A file for the emulator."""
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as file:
            file.write(contents)
        return path

    def tell(self, command, **arguments):
        """Tells the emulator something."""
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(self.control)
            lines = control.makefile("rw")
            lines.readline()
            for execute, args in (("qmp_capabilities", {}), (command, arguments)):
                json.dump({"execute": execute, "arguments": args}, lines)
                lines.flush()
                while "return" not in (answer := json.loads(lines.readline())):
                    if "error" in answer:
                        raise RuntimeError(f"{command}: {answer['error']}")

    def stack(self):
        """Bytes of stack that were used since the start: what is not painted
        any more above the static memory."""
        path = os.path.join(self.folder.name, "memory")
        self.tell("pmemsave", val=RAM + self.static, size=self.room, filename=path)
        with open(path, "rb") as file:
            memory = file.read()
        return len(memory.lstrip(bytes([PAINT])))

    def reset(self):
        """Presses the reset button; pages of flash stay."""
        self.tell("system_reset")

    def read(self):
        for line in self.process.stdout:
            try:
                number, value = (int(part, 16) for part in line.split())
            except ValueError:
                continue
            note = (time.monotonic() - self.started, NOTES.get(number, str(number)), value)
            self.notes.append(note)
            if self.show:
                print(f"  {note[0]:8.3f} s  {describe(*note[1:])}", flush=True)
            self.fresh.put(note[1:])
        self.fresh.put(None)

    def wait(self, name, seconds=PATIENCE):
        """The value of the next note of this name; earlier ones are passed."""
        end = time.monotonic() + seconds
        while True:
            try:
                note = self.fresh.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"the device did not tell {name!r}") from None
            if note is None:
                raise EOFError(f"the device ended before {name!r}")
            if note[0] == name:
                return note[1]

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def symbol(image, name):
    """The address of a symbol: behind the last variable of an image is __sheap."""
    symbols = subprocess.run(["readelf", "-sW", image], check=True, capture_output=True, text=True)
    for line in symbols.stdout.splitlines():
        fields = line.split()
        if fields and fields[-1] == name:
            return int(fields[1], 16)
    raise ValueError(f"{image}: no symbol {name}")


def describe(name, value):
    """A note in words."""
    if name == "connected":
        kind = "resumed" if value >> 31 else "full handshake"
        early = ", early data taken" if value >> 30 & 1 else ""
        return f"connected after {value & 0x3FFFFFFF} ms: {kind}{early}"
    words = {
        "wake": f"wakes at {value} ms",
        "connect": f"begins, with a ticket of {value} bytes" if value else "begins, without a ticket",
        "reading": f"writes reading {value}",
        "published": f"reading {value} is acknowledged",
        "command": f"command {chr(value)!r}",
        "ticket": f"keeps a ticket of {value} bytes",
        "sleep": f"sleeps for {value} ms",
        "failed": f"gives up: {value:#x}",
        "moved": "goes on from another address" + ("" if value else ", without telling") ,
        "subscribed": f"subscribed, reason {value}",
        "early": "first words, before the server answered" if value else "first words",
        "boot": "boots again" if value else "boots for the first time",
    }
    return words.get(name, name)
