"""Opens the data directories that the programs of former versions wrote, and finds all in
them: sessions, subscriptions, retained and queued messages, shared subscriptions, queues of
AMQP, bans.

    python3 -B scripts/upgrade/run.py target/debug/dunlin
"""

import os
import sys
import tarfile
from pathlib import Path

import state


def main() -> int:
    dunlin = os.path.realpath(sys.argv[1])
    archives = sorted((Path(__file__).parent / "data").glob("*.tar.xz"))
    state.expect(bool(archives), "data directories", archives)
    for archive in archives:
        with state.folder() as folder:
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
            with state.Broker(dunlin, Path(folder)) as broker:
                state.look(broker)
        print(f"upgrade: {archive.name.removesuffix('.tar.xz')}: all is there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
