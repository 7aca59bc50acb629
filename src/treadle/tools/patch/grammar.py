"""`parse`: the text of a patch to its values, `Patch`. `planner` makes `FileChange`s of it, `patch_transaction` applies
them.

Owns the grammar. Lenient where models stray without doubt about the meaning: white space and a heredoc around the
patch, indented headers, empty lines between sections, an empty context line without its space, `@@ -1,2 +1,2 @@` as
unified diffs have it (the numbers are ignored). Strict where text could be lost: both ends must be there, and every
line must have a meaning.

    *** Begin Patch
    *** Add File: path          lines that start with +
    *** Delete File: path
    *** Update File: path
    *** Move to: path           optional
    @@ a line above             optional, several narrow down
     context, -removed, +added
    *** End of File             optional, the hunk is at the end
    *** End Patch
"""

from __future__ import annotations

import re
from typing import Final, Literal, Never, TypeAlias, cast

from msgspec import Struct

from treadle.errors import TreadleError

# --- what a patch consists of -----------------------------------------------------------------------------------------


Mark: TypeAlias = Literal[" ", "-", "+"]
Kind: TypeAlias = Literal["add", "delete", "update"]
Reason: TypeAlias = Literal["syntax", "mismatch", "stale", "failed"]


class PatchError(TreadleError):
    """A patch cannot be read, does not fit the files, or could not be written; the message is fit for the model.

    `reason` is `syntax` (with `line`, the line of the patch), `mismatch` (the files are not as the patch says), `stale`
    (they changed after the plan) or `failed` (a write did). `unrestored` names the files that could not be put back
    after a failure; otherwise every file is as it was.
    """

    def __init__(
        self,
        message: str,
        reason: Reason,
        *,
        line: int | None = None,
        path: str | None = None,
        unrestored: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.line = line
        self.path = path
        self.unrestored = unrestored


class HunkLine(Struct, frozen=True):
    mark: Mark
    text: str


class Hunk(Struct, frozen=True, kw_only=True):
    """Lines to find and replace. `anchors` are the texts of the `@@` lines before it, outermost first."""

    line: int
    anchors: tuple[str, ...] = ()
    lines: tuple[HunkLine, ...] = ()
    at_end: bool = False


class AddFile(Struct, frozen=True, kw_only=True):
    line: int
    path: str
    content: str


class DeleteFile(Struct, frozen=True, kw_only=True):
    line: int
    path: str


class UpdateFile(Struct, frozen=True, kw_only=True):
    line: int
    path: str
    move_path: str | None = None
    hunks: tuple[Hunk, ...] = ()


Section: TypeAlias = AddFile | DeleteFile | UpdateFile


class Patch(Struct, frozen=True):
    """The sections in the order of the text; `line` of each part is its line in the text, from 1."""

    sections: tuple[Section, ...]


class FileChange(Struct, frozen=True, kw_only=True):
    """The net change of one file: `old` is what was read (`None`: no such file), `new` what will be there.

    With `move_path`, `new` goes there, `path` goes away, and `move_old` is what was there before. `diff` is what the
    item `fileChange` shows. Paths are absolute.
    """

    path: str
    kind: Kind
    old: bytes | None
    new: bytes | None
    diff: str
    move_path: str | None = None
    move_old: bytes | None = None


# --- reading one ------------------------------------------------------------------------------------------------------


MAX_CHARS: Final = 8 * 1024 * 1024  # a model cannot write that much; a file that large is not patched by text
_BEGIN: Final = "*** Begin Patch"
_END: Final = "*** End Patch"
_ADD: Final = "*** Add File:"
_DELETE: Final = "*** Delete File:"
_UPDATE: Final = "*** Update File:"
_MOVE: Final = "*** Move to:"
_END_OF_FILE: Final = "*** End of File"
_NO_NEWLINE: Final = "\\ No newline at end of file"
_HEADERS: Final = (_ADD, _DELETE, _UPDATE, _END)
_HEREDOC: Final = re.compile(r"(?:apply_patch\s*)?<<-?\s*(?P<quote>['\"]?)(?P<word>\w+)(?P=quote)")
_NUMBERS: Final = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)? @@.*")
_SHOWN: Final = 120  # an error repeats at most this much of a line


_ENVIRONMENT: Final = re.compile(r"(\s*\*\*\* Begin Patch[ \t]*\n)\*\*\* Environment ID:[ \t]*(\S+)[ \t]*\n")


def take_environment(text: str) -> tuple[str, str | None]:
    """The patch without the line that says where its files are, and the id in it."""
    found = _ENVIRONMENT.match(text)
    return (text, None) if found is None else (found[1] + text[found.end() :], found[2])


def parse(text: str) -> Patch:
    """The patch that a text is; `PatchError` names the line and what was expected there."""
    if len(text) > MAX_CHARS:
        raise PatchError(
            f"the patch has {len(text)} characters, more than {MAX_CHARS}: split it into smaller ones", "syntax"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise PatchError(
            f"line {line} of the patch: expected text, got half a character", "syntax", line=line
        ) from None
    return _Parser(text).patch()


class _Parser:
    """A cursor over the lines. `_at` is the index of the next one; `_stop` is behind the last."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._at = 0
        self._stop = len(self._lines)

    def patch(self) -> Patch:
        self._unwrap()
        if self._lines[self._at].endswith("\r"):
            # The patch itself came with CRLF; in any other patch a carriage return is content.
            self._lines = [line.removesuffix("\r") for line in self._lines]
        self._at += 1
        sections = []
        while (line := self._header()) != _END:
            sections.append(self._section(line))
        if self._at != self._stop:
            self._fail("nothing after *** End Patch")
        if not sections:
            self._fail("at least one *** Add File, *** Update File or *** Delete File between Begin and End", self._at)
        return Patch(tuple(sections))

    # --- around the sections ---

    def _unwrap(self) -> None:
        """Set the cursor to the Begin line and the end behind the End line."""
        self._trim()
        heredoc = _HEREDOC.fullmatch(self._lines[self._at].strip()) if self._at < self._stop else None
        if heredoc is not None and self._lines[self._stop - 1].strip() == heredoc["word"]:
            self._at += 1
            self._stop -= 1
            self._trim()
        if self._at >= self._stop or self._lines[self._at].strip() != _BEGIN:
            self._fail(_BEGIN, min(self._at + 1, len(self._lines)))
        if self._lines[self._stop - 1].strip() != _END:
            self._fail(f"{_END} as the last line", self._stop)

    def _trim(self) -> None:
        while self._at < self._stop and not self._lines[self._at].strip():
            self._at += 1
        while self._at < self._stop and not self._lines[self._stop - 1].strip():
            self._stop -= 1

    def _header(self) -> str:
        """The next header, which may be indented and have empty lines before it; it is consumed."""
        while self._at < self._stop and not self._lines[self._at].strip():
            self._at += 1
        line = self._lines[self._at].strip() if self._at < self._stop else ""
        if not line.startswith(_HEADERS):
            self._fail("*** Add File: path, *** Update File: path, *** Delete File: path or *** End Patch")
        self._at += 1
        return line

    def _section(self, header: str) -> Section:
        start = self._at
        if header.startswith(_ADD):
            path = self._path(header, _ADD)
            while self._lines[self._at].startswith("+"):
                self._at += 1
            content = "".join(f"{line[1:]}\n" for line in self._lines[start : self._at])
            return AddFile(line=start, path=path, content=content)
        if header.startswith(_DELETE):
            return DeleteFile(line=start, path=self._path(header, _DELETE))
        if not header.startswith(_UPDATE):
            self._fail(f"{_END} without more on its line", start)
        path, move_path = self._path(header, _UPDATE), None
        if self._at < self._stop and (line := self._lines[self._at].strip()).startswith(_MOVE):
            self._at += 1
            move_path = self._path(line, _MOVE)
        hunks = self._hunks()
        if not hunks and move_path is None:
            self._fail(f"a hunk for *** Update File: {_cut(path)}")
        return UpdateFile(line=start, path=path, move_path=move_path, hunks=hunks)

    def _path(self, header: str, prefix: str) -> str:
        path = header.removeprefix(prefix).strip()
        if not path or "\0" in path:
            self._fail(f"a path after {prefix}", self._at)
        return path

    # --- inside a section; a marker counts only at the start of its line, indented it is content ---

    def _hunks(self) -> tuple[Hunk, ...]:
        hunks: list[Hunk] = []
        while True:
            # Pass the empty lines that separate: those before `@@` or a header. Others are context.
            start = self._at
            while not self._lines[self._at].strip():
                self._at += 1
            if not (self._at_header() or self._lines[self._at].startswith("@@")):
                self._at = start
            if self._at_header():
                return tuple(hunks)
            if hunks and not self._lines[self._at].startswith("@@"):
                self._fail("@@ before the next hunk, or the header of the next file")
            hunks.append(self._hunk())

    def _at_header(self) -> bool:
        return self._at == self._stop - 1 or self._lines[self._at].startswith(_HEADERS)

    def _hunk(self) -> Hunk:
        start = self._at + 1
        anchors: list[str] = []
        while self._lines[self._at].startswith("@@"):
            anchor = self._lines[self._at][2:].removeprefix(" ").rstrip()
            if anchor.strip() and not _NUMBERS.fullmatch(anchor.strip()):
                anchors.append(anchor)
            self._at += 1
        lines = self._hunk_lines()
        at_end = self._lines[self._at].rstrip() == _END_OF_FILE
        if not lines:
            self._fail("a line that starts with ' ', '-' or '+'")
        self._at += at_end
        return Hunk(line=start, anchors=tuple(anchors), lines=lines, at_end=at_end)

    def _hunk_lines(self) -> tuple[HunkLine, ...]:
        lines: list[HunkLine] = []
        unmarked = 0  # empty lines without a mark at the end so far
        while not self._at_header():
            line = self._lines[self._at].removesuffix("\r")
            if line.startswith("@@") or line.rstrip() == _END_OF_FILE:
                return tuple(lines)
            if line.rstrip() != _NO_NEWLINE:
                mark = line[:1] or " "
                if mark not in " -+":
                    self._fail("a line that starts with ' ', '-', '+' or '@@', or a header")
                lines.append(HunkLine(cast(Mark, mark), line[1:]))
                unmarked = 0 if line else unmarked + 1
            self._at += 1
        # Before a header they separate sections; as context they would only be in the way.
        return tuple(lines[: len(lines) - unmarked])

    def _fail(self, expected: str, line: int | None = None) -> Never:
        """Raise for a line number; without one, for the next line."""
        number = self._at + 1 if line is None else line
        got = repr(_cut(self._lines[number - 1])) if number <= len(self._lines) else "the end"
        raise PatchError(f"line {number} of the patch: expected {expected}, got {got}", "syntax", line=number)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
