"""An Ethernet with a router, a DHCP server and one device, which is in QEMU: its
frames are datagrams to here. What the device sends to a port of the router goes to
that port of this machine."""

import selectors
import socket
import struct
import threading

from device import GATEWAY, address
from peers import free_port

ROUTER_MAC = bytes.fromhex("525400000002")
BROADCAST = b"\xff" * 6
FRAME_MAX = 2048
MAGIC = bytes.fromhex("63825363")
SERVER_PORT, CLIENT_PORT = 67, 68
KINDS = {1: "discover", 3: "request"}
OFFER, ACK, NAK = 2, 5, 6


class Lan:
    """`lease` is what the server gives: an address and seconds. `said` is what it
    was asked, and `seen` the addresses that the device sent datagrams from."""

    def __init__(self, lease):
        self.lease = lease
        self.said = []
        self.seen = []
        self.wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.wire.bind(("127.0.0.1", 0))
        # A port for the emulator, which must be named to it.
        self.device = ("127.0.0.1", free_port())
        self.mac = None
        self.outside = {}
        self.open = True
        self.events = selectors.DefaultSelector()
        self.events.register(self.wire, selectors.EVENT_READ, None)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def nic(self):
        """The emulator's option."""
        ends = "udp=127.0.0.1:{},localaddr=127.0.0.1:{}"
        return "socket,model=lan9118," + ends.format(self.wire.getsockname()[1], self.device[1])

    def run(self):
        while self.open:
            for key, _ in self.events.select(timeout=0.2):
                try:
                    data = key.fileobj.recv(FRAME_MAX)
                except OSError:
                    # The port is closed: the network says nothing either.
                    continue
                if key.data is None:
                    self.take(data)
                else:
                    self.datagram(*key.data, data)

    def take(self, frame):
        self.mac = frame[6:12]
        kind = frame[12:14]
        if kind == b"\x08\x06" and frame[20:22] == b"\0\1" and frame[38:42] == address(GATEWAY):
            there, whom = frame[22:32], frame[38:42]
            self.send(b"\x08\x06" + frame[14:20] + b"\0\2" + ROUTER_MAC + whom + there)
        elif kind == b"\x08\0" and frame[23] == 17:
            here = frame[26:30]
            port, to = struct.unpack(">HH", frame[34:38])
            (length,) = struct.unpack(">H", frame[38:40])
            data = frame[42 : 34 + length]
            if to == SERVER_PORT:
                self.dhcp(data)
            elif frame[30:34] == address(GATEWAY):
                self.forward(here, port, to, data)

    def send(self, rest, to=None):
        self.wire.sendto((to or self.mac) + ROUTER_MAC + rest, self.device)

    def forward(self, here, port, to, data):
        """Out by a socket for each address and port of the device."""
        seen = socket.inet_ntoa(here)
        if seen not in self.seen:
            self.seen.append(seen)
        way = (to, here, port)
        if way not in self.outside:
            outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            outside.connect(("127.0.0.1", to))
            self.events.register(outside, selectors.EVENT_READ, way)
            self.outside[way] = outside
        try:
            self.outside[way].send(data)
        except OSError:
            pass

    def datagram(self, port, to_address, to, data, frame_to=None):
        """A datagram of the router to the device; without a checksum of its own,
        as IPv4 allows."""
        udp = struct.pack(">HHHH", port, to, 8 + len(data), 0)
        header = struct.pack(">BBHIBBH", 0x45, 0, 28 + len(data), 0x4000, 64, 17, 0)
        header += address(GATEWAY) + to_address
        total = sum(struct.unpack(">10H", header))
        total = (total & 0xFFFF) + (total >> 16)
        check = struct.pack(">H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)
        header = header[:10] + check + header[12:]
        self.send(b"\x08\0" + header + udp + data, frame_to)

    def dhcp(self, message):
        """Answers to DISCOVER with an offer, and to REQUEST with what was offered or
        with a refusal."""
        options = dict(read_options(message[240:]))
        kind = KINDS.get(options[53][0])
        self.said.append(kind)
        text, seconds = self.lease
        given = address(text)
        asked = options.get(50, message[12:16])
        if kind == "discover":
            answer = OFFER
        else:
            answer = ACK if asked == given else NAK
        out = bytes([2, 1, 6, 0]) + message[4:8] + bytes(8)
        out += (bytes(4) if answer == NAK else given) + bytes(8)
        out += message[28:34] + bytes(202) + MAGIC
        out += bytes([53, 1, answer, 54, 4]) + address(GATEWAY)
        if answer != NAK:
            out += bytes([51, 4]) + struct.pack(">I", seconds)
            out += bytes([1, 4]) + address("255.255.255.0")
            out += bytes([3, 4]) + address(GATEWAY)
        self.datagram(SERVER_PORT, b"\xff" * 4, CLIENT_PORT, out + b"\xff", BROADCAST)

    def end(self):
        self.open = False
        self.thread.join()
        for end in [self.wire, *self.outside.values()]:
            end.close()


def read_options(data):
    """The options of a DHCP message: number and contents."""
    while data and data[0] != 255:
        if data[0] == 0:
            data = data[1:]
            continue
        yield data[0], data[2 : 2 + data[1]]
        data = data[2 + data[1] :]
