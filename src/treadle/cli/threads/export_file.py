"""Where an export goes: a file that is whole or not there, or what stands for one such as /dev/stdout."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from treadle.cli.exit_codes import REFUSED
from treadle.cli.problem import Problem


def check_target(path: Path, *, force: bool) -> None:
    """What cannot be written later is said now."""
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
        with temporary.open("x", encoding="utf-8", errors="backslashreplace") as file:
            yield file
        if not force:
            check_target(path, force=False)  # somebody may have made it meanwhile
        temporary.replace(target)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
