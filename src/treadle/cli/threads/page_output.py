"""How a page is written (`page_for` a format, `page_pieces`), and where it goes: `export_file`, a file that is whole or
not there (or what stands for one, such as /dev/stdout), or `Pager`, which shows a long text on a terminal with `less`
or what `PAGER` names.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

from treadle.cli.problem import Problem
from treadle.cli.streams import REFUSED, write
from treadle.cli.threads.markdown_page import MarkdownPage
from treadle.cli.threads.thread_library import ThreadLibrary
from treadle.pages.html_page import HtmlPage
from treadle.pages.page import Heading, JsonPage, Page
from treadle.pages.view_blocks import item_blocks

# Leave at once when it fits on the screen, show colours, leave the text there afterwards. No other sequences than our
# colours are in it.
_LESS: Final = "FRX"


_PAGES: Final[dict[str, Callable[[], Page]]] = {"md": MarkdownPage, "json": JsonPage, "html": HtmlPage}
_SUFFIXES: Final = {".md": "md", ".markdown": "md", ".json": "json", ".html": "html", ".htm": "html"}
FORMATS: Final = tuple(_PAGES)


def page_for(kind: str | None, target: Path | None) -> Page:
    """A page of this format, else of that which the name of the file tells, else Markdown."""
    if kind is None and target is not None:
        kind = _SUFFIXES.get(target.suffix.lower())
        if kind is None:
            raise Problem(
                f"the name {target.name} does not tell the format",
                do="a name that ends in .html, .md or .json, or --format",
                code=REFUSED,
            )
    return _PAGES[kind or "md"]()


async def page_pieces(
    library: ThreadLibrary, heading: Heading, page: Page, *, last: int | None = None
) -> AsyncGenerator[str, None]:
    """A thread read page by page and written piece by piece; with `last`, so many turns of it."""
    thread_id, count = heading.thread.id, len(heading.turns)
    first = 0 if last is None else max(0, count - last)
    yield page.head(heading)
    places = {turn.id: place for place, turn in enumerate(heading.turns)}
    at = first - 1  # the turn that is being written

    def up_to(place: int) -> str:
        """Ends the turn that is open, and begins those up to `place`: there may be some without items."""
        nonlocal at
        pieces = []
        for number in range(at + 1, place + 1):
            if number > first:
                pieces.append(page.turn_ended(heading.turns[number - 1]))
            pieces.append(page.turn_begun(number + 1, heading.turns[number]))
        at = max(at, place)
        return "".join(pieces)

    async for turn_id, item in library.items(
        thread_id, [turn.id for turn in heading.turns[first:]] if first else [None]
    ):
        if turn_id not in places:  # begun since the turns were read
            break
        yield up_to(places[turn_id])
        if isinstance(page, HtmlPage) and page.pictures.seen is None:
            pictures = [picture for block in item_blocks(item) for picture in getattr(block, "pictures", ())]
            if any(picture.path is not None for picture in pictures):
                page.pictures.seen = await library.seen_pictures(thread_id)
        yield page.item(item)
    if count > first:
        yield up_to(count - 1)
        yield page.turn_ended(heading.turns[-1])
    yield page.foot()


def check_target(path: Path, *, force: bool) -> None:
    """Raise `Problem` for what cannot be written later, before anything is read."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise Problem(
                f"{path} cannot be written", why=f"there is no directory {path.parent}", code=REFUSED
            ) from None
        return
    if stat.S_ISDIR(mode):
        raise Problem(f"{path} is a directory", do=f"-o {path / 'thread.html'}", code=REFUSED)
    if stat.S_ISREG(mode) and not force:
        raise Problem(f"{path} is there already", do="another name, or --force to replace it", code=REFUSED)


@contextmanager
def export_file(path: Path, *, force: bool) -> Iterator[TextIO]:
    """The file to write. When something goes wrong, what was there is still there."""
    check_target(path, force=force)
    if path.exists() and not path.is_file():  # a device or a pipe is written, never replaced
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}.{os.urandom(6).hex()}.new")
    try:
        # For its owner alone: a conversation quotes files, and whoever wants to share it can.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            yield file
        if not force:
            check_target(path, force=False)  # somebody may have made it meanwhile
        temporary.replace(target)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


class PagerClosed(Exception):
    """The reader has seen enough."""


class Pager:
    """Writes to the pager, and to standard output if there is none."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._handler: Any = None

    def __enter__(self) -> Self:
        words = shlex.split(os.environ.get("PAGER") or "less")
        if words and shutil.which(words[0]):
            environ = {"LESS": _LESS, **os.environ}
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, env=environ, text=True, encoding="utf-8", errors="backslashreplace"
            )
            self._handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the pager now
        return self

    def write(self, text: str) -> None:
        """Raises `PagerClosed` or `OutputFailed`."""
        if self._process is None or self._process.stdin is None:
            write(sys.stdout, text)
            return
        try:
            self._process.stdin.write(text)
        except BrokenPipeError:
            raise PagerClosed from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._process is not None:
            try:
                assert self._process.stdin is not None
                self._process.stdin.close()
            except BrokenPipeError:
                pass  # what was left in the buffer is not wanted either
            self._process.wait()  # its owner is the person who reads
            signal.signal(signal.SIGINT, self._handler)
        return kind is PagerClosed
