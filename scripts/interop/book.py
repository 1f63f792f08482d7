"""Puts the results of the last full run into the page of the book, between its
marks: `make interop` ends with it. What was not run keeps its old text.
"""

import re
import sys

import results
from brokers import BROKERS, ROOT

PAGE = ROOT / "docs/book/src/interop.md"

SCENARIOS = (
    "| client | broker | over | MQTT | passed | failed | skipped |\n"
    "|---|---|---|---|---:|---:|---:|\n"
)


def scenarios() -> str | None:
    rows = [results.read(f"scenarios-{name}") for name in BROKERS]
    rows = [row for row in rows if row]
    return SCENARIOS + "".join(rows) if rows else None


def main() -> int:
    page = PAGE.read_text()
    parts = {
        "features": results.read("features"),
        "own": results.read("own"),
        "scenarios": scenarios(),
        "amqp": results.read("amqp"),
        "wire": results.read("wire"),
    }
    for name, text in parts.items():
        if text is None:
            print(f"interop: the book keeps its {name}: they were not run")
            continue
        begin, end = f"<!-- {name}: written by make interop -->\n", f"<!-- end of {name} -->\n"
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        page, count = re.subn(pattern, lambda _: begin + text + end, page, flags=re.DOTALL)
        if count != 1:
            print(f"interop: {PAGE.name} has {count} places for {name}")
            return 1
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
