"""Results of a run for the book: parts of a page, one file each, until `book.py`
puts them together.
"""

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
