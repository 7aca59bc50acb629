"""Make the virtual environment of this repository, or bring it up to date.

    python3 scripts/make_venv.py [FOLDER [run|test|dev]]

`run` is what Treadle itself needs, `test` adds what its tests need, `dev` the linters and type checkers. Standard
library only, and old Pythons can read it, to be told what is needed. An environment that was left half made, that came
here from another folder, or whose Python is gone is made anew. `FOLDER/.ready-STAGE` says that a stage is complete, so
that the Makefile need not ask.
"""

import fcntl
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT = REPOSITORY / "pyproject.toml"
OLDEST = (3, 11)
# Each has all of those before it.
STAGES = {
    "run": (".", "treadle"),
    "test": (".[test]", "treadle and what its tests need"),
    "dev": (".[dev]", "treadle and its development tools"),
}
# Written before the first file and removed after the last: who finds it knows that somebody was stopped in between.
UNFINISHED = ".unfinished"
# Which repository it was made for: an editable install and the programs in `bin` have its path in them.
PLACE = ".place"
# A registry that does not answer at once is asked again: a build should not fail for a hiccup.
PAUSES_S = (2, 8)
LAST_LINES = 12
LAST_CHARS = 200
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Failed(Exception):
    """What happened, why, and what to type."""

    def __init__(self, what: str, why: str, try_: str) -> None:
        super().__init__(f"{what}\n  why: {why}\n  try: {try_}")


def main(arguments: "list[str]") -> int:
    folder = Path(arguments[0] if arguments else ".venv").absolute()
    stage = arguments[1] if len(arguments) > 1 else "dev"
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        _check_python(sys.version_info[:2])
        make(folder, stage)
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; the next `make` starts over", file=sys.stderr)
        return 130
    return 0


def make(folder: Path, stage: str) -> None:
    """Afterwards the stage is complete. Two at the same time: the second waits, and finds it done."""
    with Path(__file__).open() as lock:
        _acquire(lock, folder)
        broken = _broken(folder)
        if not broken and _complete(folder, stage):
            return
        began = time.monotonic()
        if broken:
            _create(folder, broken)
        _install(folder, stage)
        _mark(folder, stage)
        print(f"{folder.name} is ready after {time.monotonic() - began:.0f} s", flush=True)


def _acquire(lock: "TextIO", folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"another `make` is making {folder.name}; waiting for it …", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)


# --- what is there ---------------------------------------------------------------------------------------------------


def _check_python(version: "tuple[int, ...]") -> None:
    """Goes on in a newer Python where this one is too old and there is one."""
    if version < OLDEST:
        found = _newer_python()
        if found is not None:
            print(f"python3 is {version[0]}.{version[1]}, so {found} is used", flush=True)
            os.execv(found, [found, *sys.argv])
        raise Failed(
            f"This Python is {version[0]}.{version[1]}; treadle needs {OLDEST[0]}.{OLDEST[1]} or newer.",
            f"{sys.executable} was asked, and there is no newer one on the PATH",
            "install one (Debian: `apt install python3 python3-venv`), or name it: `make PYTHON=/path/to/python3 run`",
        )


def _newer_python() -> "str | None":
    for minor in range(20, OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        # Version managers put programs on the PATH that only say that they are not there.
        if found and subprocess.run([found, "-c", "pass"], capture_output=True).returncode == 0:
            return found
    return None


def _broken(folder: Path) -> str:
    """Why it has to be made anew; empty if it need not be."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return "there is none"
    if not _ours(folder):
        raise Failed(
            f"{folder} is not a virtual environment.",
            "something else is there, and it is not overwritten",
            "move it away, or choose another folder: `make VENV=.venv-treadle run`",
        )
    if (folder / UNFINISHED).exists():
        return "it was left half made"
    if not (folder / PLACE).exists():
        return "somebody else made it"
    if (folder / PLACE).read_bytes() != os.fsencode(REPOSITORY):
        return "it was made for another folder"
    if _run([str(folder / "bin" / "python"), "-c", "import pip"]) != 0:
        return "its Python does not run"
    return ""


def _ours(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").is_file() or (folder / UNFINISHED).is_file()


def _run(command: "list[str]") -> int:
    try:
        return subprocess.run(command, capture_output=True).returncode
    except OSError:
        return -1


def _complete(folder: Path, stage: str) -> bool:
    marker = folder / f".ready-{stage}"
    newest = max(path.stat().st_mtime for path in (PROJECT, Path(__file__)))
    return marker.exists() and marker.stat().st_mtime >= newest


def _mark(folder: Path, stage: str) -> None:
    (folder / PLACE).write_bytes(os.fsencode(REPOSITORY))
    (folder / UNFINISHED).unlink()
    for name in list(STAGES)[: list(STAGES).index(stage) + 1]:
        (folder / f".ready-{name}").touch()


# --- making it -------------------------------------------------------------------------------------------------------


def _create(folder: Path, reason: str) -> None:
    _check_ensurepip()
    again = "" if reason == "there is none" else f" anew: {reason}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / UNFINISHED).touch()
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != UNFINISHED:
            entry.unlink()
    last = watch([sys.executable, "-m", "venv", str(folder)], f"making {folder.name}{again}")
    if last is not None:
        raise Failed(
            "\n".join([*last, f"The virtual environment {folder} could not be made."]),
            "`python3 -m venv` failed; its last words are above",
            "the same again when that is mended",
        )


def _check_ensurepip() -> None:
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as missing:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise Failed(
            "This Python cannot make virtual environments.",
            f"{sys.executable} has no module {missing.name}; Debian and Ubuntu have it in a package of its own",
            f"`apt install python3-venv` (or `python{version}-venv`), then the same again",
        ) from None


def _install(folder: Path, stage: str) -> None:
    wanted, title = STAGES[stage]
    # Nothing is compiled before it is used: that is a third of the work.
    options = ["--no-compile", "--no-input", "--retries", "2", "--progress-bar", "off", "--disable-pip-version-check"]
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", *options, "-e", wanted]
    (folder / UNFINISHED).touch()
    for pause in (*PAUSES_S, 0):
        last = watch(command, f"installing {title}")
        if last is None:
            return
        if pause:
            print(f"pip failed, again in {pause} s: {_error(last)}", file=sys.stderr, flush=True)
            time.sleep(pause)
    # pip ended by itself, and leaves nothing half done: the next call need not start over.
    (folder / PLACE).write_bytes(os.fsencode(REPOSITORY))
    (folder / UNFINISHED).unlink()
    raise Failed(
        "\n".join([*(last or []), "The packages could not be installed."]),
        f"pip failed {len(PAUSES_S) + 1} times; its last words are above",
        "the same again when the package registry can be reached (a proxy: HTTPS_PROXY; a mirror: PIP_INDEX_URL)",
    )


# --- what is seen of it ----------------------------------------------------------------------------------------------


def watch(command: "list[str]", title: str) -> "list[str] | None":
    """Run a program and show one moving line on a terminal, one plain line elsewhere. Its last lines if it failed."""
    moving = sys.stdout.isatty()
    if not moving:
        print(f"{title} …", flush=True)
    began = time.monotonic()
    last: deque[str] = deque(maxlen=LAST_LINES)
    # A user's setting to install into the home would be refused in a virtual environment.
    environment = {**os.environ, "PIP_USER": "0"}
    child = subprocess.Popen(
        command, cwd=str(REPOSITORY), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    try:
        for line in _lines(child):
            if line:
                last.append(line[:LAST_CHARS])
            if moving:
                _draw(title, said(last), time.monotonic() - began)
    finally:
        if moving:
            print("\r\x1b[K", end="", flush=True)
        _end(child)
    if moving and child.returncode == 0:
        print(f"{title}: {time.monotonic() - began:.0f} s", flush=True)
    return None if child.returncode == 0 else list(last)


def _lines(child: "subprocess.Popen[bytes]") -> "Iterator[str]":
    """Lines as they come, and an empty one when none came for a while."""
    assert child.stdout is not None
    begun = b""
    while True:
        if not select.select([child.stdout], [], [], 0.1)[0]:
            yield ""
            continue
        data = os.read(child.stdout.fileno(), 65536)
        if not data:
            break
        *whole, begun = (begun + data).split(b"\n")
        yield from (line.decode("utf-8", "replace").rstrip() for line in whole if line.strip())
    if begun.strip():
        yield begun.decode("utf-8", "replace").rstrip()


def _end(child: "subprocess.Popen[bytes]") -> None:
    """It has ended by itself, or has had the same Ctrl-C as we."""
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdout is not None:
        child.stdout.close()


def said(last: "deque[str]") -> str:
    """What pip is doing, from the last of its lines that tells."""
    for line in reversed(last):
        found = re.match(r"\s*(Collecting|Downloading|Using cached) ([a-zA-Z][\w.]*(?:-[a-zA-Z][\w.]*)*)", line)
        if found:
            return f"{found[1].lower()} {found[2]}"
        if line.startswith("Installing collected packages:"):
            return f"unpacking {line.count(',') + 1} packages"
        if line.lstrip().startswith(("Installing build", "Preparing", "Building")):
            return "preparing the build"
    return ""


def _error(last: "list[str]") -> str:
    errors = [line.strip() for line in last if line.lstrip().startswith("ERROR: ")]
    return errors[-1][len("ERROR: ") :] if errors else last[-1] if last else "it said nothing"


def _draw(title: str, doing: str, elapsed: float) -> None:
    text = " · ".join(part for part in (title, doing, f"{elapsed:.0f} s") if part)
    width = shutil.get_terminal_size().columns
    print(f"\r\x1b[K{SPINNER[int(elapsed * 10) % len(SPINNER)]} {text}"[: width + 3], end="", flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
