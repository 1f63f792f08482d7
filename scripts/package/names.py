"""A name server for one test: answers what address a host has, and that there is no other.

    python3 scripts/package/names.py HOST ADDRESS      (at port 53 of 127.0.0.1)
"""

import socket
import struct
import sys

QUERY_BYTES_MAX = 512
SECONDS_TO_LIVE = 60
TYPE_A = 1
NO_SUCH_NAME = 3


def main() -> int:
    host, address = sys.argv[1].lower(), socket.inet_aton(sys.argv[2])
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    print("ready", flush=True)
    while True:
        query, client = server.recvfrom(QUERY_BYTES_MAX)
        if reply := answer(query, host, address):
            server.sendto(reply, client)


def answer(query: bytes, host: str, address: bytes) -> bytes:
    """The answer to a query with one question, as RFC 1035 says; nothing for another."""
    if len(query) < 12 or query[4:6] != b"\0\1":
        return b""
    labels, at = [], 12
    while at < len(query) and query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]])
        at += 1 + query[at]
    question = query[12 : at + 5]
    if len(question) < at + 5 - 12:
        return b""
    known = b".".join(labels).decode("ascii", "replace").lower() == host
    asked = struct.unpack("!H", question[-4:-2])[0]
    has_address = known and asked == TYPE_A
    flags = 0x8580 | (0 if known else NO_SUCH_NAME)
    head = query[:2] + struct.pack("!HHHHH", flags, 1, int(has_address), 0, 0)
    record = b"\xc0\x0c" + struct.pack("!HHIH", TYPE_A, 1, SECONDS_TO_LIVE, 4) + address
    return head + question + (record if has_address else b"")


if __name__ == "__main__":
    sys.exit(main())
