"""Free ports of the loopback interface."""

import os
import random
import socket

# Below the ports that kernels give to connections that go out (Linux: from 32768
# on, `net.ipv4.ip_local_port_range`). None of these can take the port between
# the look at it and the start of the server that wants it.
FIRST, LAST = 20_000, 32_000

# Programs that run at once have a part of them each: as many as there are lanes, and
# PORTS_LANE says which (scripts/steps.py). Without, all are theirs.
LANES = 4
SPAN = (LAST - FIRST) // LANES

# Ports that are tried at most.
TRIES_MAX = 100

# Ports that this program has given out. A port is free until its server starts,
# and a program asks for several before it starts one.
given: set[int] = set()


def bounds() -> tuple[int, int]:
    """The first and the last port of this program."""
    lane = os.environ.get("PORTS_LANE")
    if lane is None:
        return FIRST, LAST
    first = FIRST + int(lane) * SPAN
    return first, first + SPAN - 1


def free_port() -> int:
    """A port without a TCP listener and without a UDP socket now, given out once."""
    for _ in range(TRIES_MAX):
        port = random.randint(*bounds())
        if port in given:
            continue
        try:
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                with socket.socket(socket.AF_INET, kind) as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        given.add(port)
        return port
    raise RuntimeError(f"no free port from {FIRST} to {LAST} in {TRIES_MAX} tries")


if __name__ == "__main__":
    import sys

    print(*(free_port() for _ in range(int(sys.argv[1]))))
