"""What is fenced in a page of the book, and what its marks say is to be done with it.

A mark is a word behind the language of a fence:

    ```sh run            is run, and must succeed
    ```sh fails          is run, and must fail
    ```sh start          is a program that runs on until the page ends, or `stop`
    ```sh sketch         is not run: it is for another machine, or takes long
    ```toml file=NAME    is written to that file before
    ```text shows        is in the output of the commands before it; `…` is anything

What readers do not see, such as another machine's part, is a comment:

    <!-- run
    commands
    -->

`<!-- stop -->` ends the programs that were started, `<!-- wait TEXT -->` waits for a
line of theirs, `<!-- input TEXT -->` is what the next commands read.

A page with `<!-- machine -->` is for a machine with services and the Debian package:
scripts/package/service.sh runs it.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"^ *```(\w*) ?(.*)$")
MARKED = re.compile(r"^ *(```sh|<!--) (run|fails|start)\b", re.MULTILINE)
COMMENT = re.compile(r"^<!-- (run|fails|start|shows|stop|wait|input)\b ?(.*?)(-->)?$")
# What may be done with a block that is a command.
COMMANDS = ("run", "fails", "start")
SKETCH = "sketch"
MACHINE = "<!-- machine -->"


class Mistake(Exception):
    """A page says something that cannot be run."""


@dataclass
class Block:
    kind: str
    line: int
    text: str = ""
    argument: str = ""
    lines: list[str] = field(default_factory=list)


def has_some(page: Path) -> bool:
    """Whether there is something to be done. Then every command of the page has a mark."""
    return MARKED.search(page.read_text()) is not None


def is_of_machine(page: Path) -> bool:
    """Whether its commands are for a machine with services."""
    return MACHINE in page.read_text().splitlines()


def of_page(page: Path) -> list[Block]:
    """All that is to be done, in the order of the page."""
    blocks, block, closes = [], None, ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if block is not None:
            if line.strip() == closes:
                block.text = "\n".join(block.lines) + "\n"
                blocks.append(block)
                block = None
            else:
                block.lines.append(line)
            continue
        if found := COMMENT.match(line):
            kind, argument, ended = found.groups()
            block = Block(kind, number, argument=argument.strip())
            closes = "-->"
            if ended:
                blocks.append(block)
                block = None
        elif found := FENCE.match(line):
            block = Block(_kind(page, number, *found.groups()), number)
            block.argument = found[2].partition("=")[2]
            closes = "```"
    return [it for it in blocks if it.kind]


def _kind(page: Path, line: int, language: str, mark: str) -> str:
    word = mark.partition("=")[0]
    if language == "sh" and word == SKETCH:
        return ""
    if language == "sh" and word not in COMMANDS:
        marks = ", ".join((*COMMANDS, SKETCH))
        raise Mistake(f"{page.name}:{line}: commands need a mark, one of {marks}")
    if word not in ("", "file", "shows", *COMMANDS):
        raise Mistake(f"{page.name}:{line}: there is no mark {word!r}")
    return word
