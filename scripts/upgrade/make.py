"""Makes a data directory with the program of a version, for run.py of later ones; each
release adds one.

    python3 -B scripts/upgrade/make.py target/release/dunlin 0.1.0
"""

import os
import sys
import tarfile
from pathlib import Path

import state

# What takes room and is made again.
LEFT_OUT = ("store.redb.reserve", "store.redb.lock", "control.sock")
BYTES_MAX = 200_000


def main() -> int:
    dunlin, version = os.path.realpath(sys.argv[1]), sys.argv[2]
    out = Path(__file__).parent / "data" / f"{version}.tar.xz"
    with state.folder() as folder:
        with state.Broker(dunlin, Path(folder)) as broker:
            state.fill(broker)
        with tarfile.open(out, "w:xz") as archive:
            for path in sorted((Path(folder) / "data").iterdir()):
                if path.name not in LEFT_OUT:
                    archive.add(path, f"data/{path.name}")
    size = out.stat().st_size
    print(f"{out}: {size} bytes")
    return 0 if size <= BYTES_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
