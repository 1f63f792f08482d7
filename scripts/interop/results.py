"""Results of a run: its last lines, and parts of a page of the book, one file each,
until `book.py` puts them together.
"""

from collections import Counter
from pathlib import Path

from brokers import ROOT

FOLDER = ROOT / "target/interop-results"


def write(part: str, text: str) -> None:
    """Keeps a part of the page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{part}.md").write_text(text)


def read(part: str) -> str | None:
    path: Path = FOLDER / f"{part}.md"
    return path.read_text() if path.is_file() else None


def conclude(count: Counter[str], failures: list[str], log: str = "") -> int:
    """Prints each failure, the end of the broker's log if there is any failure, and the
    last line of a run; the exit code."""
    if failures:
        print("failed:")
    for failure in failures:
        print(f"  {failure}")
    if failures and log:
        print(f"end of the broker's log:\n{log}\n")
    print(f"{count['ok']} passed, {count['FAIL']} failed, {count['skip']} skipped")
    return 1 if count["FAIL"] else 0
