"""`TurnDiff`: everything that patches have changed in a turn, as one diff in the manner of git. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from treadle.tools.patch.diff import unified
from treadle.tools.patch.patch_values import FileChange

_NOTHING: Final = "0" * 40
MAX_CHARS: Final = 1 << 20


class _Changed(Struct):
    """`origin` is where the file was when the turn began, `old` what was in it; `new` is what is there now."""

    origin: str
    old: bytes | None
    new: bytes | None


class TurnDiff:
    def __init__(self) -> None:
        self._files: dict[str, _Changed] = {}

    def add(self, change: FileChange) -> None:
        known = self._files.pop(change.path, None) or _Changed(change.path, change.old, None)
        if change.move_path is not None:
            self._files[change.move_path] = _Changed(known.origin, known.old, change.new)
        else:
            self._files[change.path] = _Changed(known.origin, known.old, change.new)

    def text(self, cwd: str) -> str:
        files = sorted(self._files.items(), key=lambda entry: entry[1].origin)
        parts = [_diff(path, changed, cwd) for path, changed in files]
        text = "".join(parts)
        return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + "\n[the rest of the diff is left out]\n"


def _diff(path: str, changed: _Changed, cwd: str) -> str:
    if changed.old == changed.new and changed.origin == path:
        return ""
    before, after = _relative(changed.origin, cwd), _relative(path, cwd)
    head = f"diff --git a/{before} b/{after}\n"
    if changed.old is None:
        head += "new file mode 100644\n"
    elif changed.new is None:
        head += "deleted file mode 100644\n"
    head += f"index {_blob(changed.old)}..{_blob(changed.new)}\n"
    head += f"--- {'/dev/null' if changed.old is None else f'a/{before}'}\n"
    head += f"+++ {'/dev/null' if changed.new is None else f'b/{after}'}\n"
    return head + unified(changed.old or b"", changed.new or b"")


def _relative(path: str, cwd: str) -> str:
    return path[len(cwd) :].lstrip("/") if path.startswith(cwd.rstrip("/") + "/") else path.lstrip("/")


def _blob(data: bytes | None) -> str:
    """The name that git gives to a file's content."""
    if data is None:
        return _NOTHING
    from hashlib import sha1  # loads OpenSSL; few turns have a patch

    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
