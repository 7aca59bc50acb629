"""A program, run inside a sandbox or, as the control, outside: makes its attempts one after the other.

It reads `[[name, ground], …]` as JSON from stdin and writes one line of JSON for each: the name, what the attempt told
(in hexadecimal) and how it failed, if it did. Each runs in a process of its own, since some end theirs.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from typing import Never

PATIENCE_S = 10
MAX_TOLD = 1 << 16


def rows() -> None:
    """Fill the table."""
    for name in ("files", "processes", "sockets", "kernel", "shared"):
        importlib.import_module(f"system.escapes.escape_{name}")


def _in_child(name: str, ground: dict[str, object], told: int, failed: int) -> Never:
    from system.escapes.escape_table import TABLE, Ground

    signal.alarm(PATIENCE_S)
    try:
        os.chdir(str(ground["work"]))
        TABLE[name].run(Ground(**ground), lambda data: _write(told, data))  # type: ignore[arg-type]
    except OSError as error:
        _write(failed, f"{error.errno or 0} {error}".encode())
    except BaseException:
        _write(failed, b"0 " + traceback.format_exc().encode())
    os._exit(0)


def _write(descriptor: int, data: bytes) -> None:
    os.write(descriptor, data[: MAX_TOLD // 2])


def _make(name: str, ground: dict[str, object]) -> dict[str, object]:
    told, say = os.pipe()
    failed, fail = os.pipe()
    child = os.fork()
    if child == 0:
        _in_child(name, ground, say, fail)
    _, status = os.waitpid(child, 0)
    texts = []
    for descriptor in (told, failed):
        os.set_blocking(descriptor, False)  # something that the attempt left behind may have it open still
        try:
            texts.append(os.read(descriptor, MAX_TOLD))
        except BlockingIOError:
            texts.append(b"")
    for descriptor in (told, say, failed, fail):
        os.close(descriptor)
    number, _, error = texts[1].decode(errors="replace").partition(" ")
    if status != 0:
        error = f"ended with status {status}"
    return {"name": name, "told": texts[0].hex(), "errno": int(number or 0), "error": error}


def main() -> None:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    rows()
    for name, ground in json.load(sys.stdin):
        sys.stdout.write(json.dumps(_make(name, ground)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
