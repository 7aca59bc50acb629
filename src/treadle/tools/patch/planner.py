"""`plan`: what a patch will change, given the files as they are. Pure: it reads through a function and writes nothing.

Owns what each section may do, and how several sections on one file add up to one change:

- sections see what the sections before them did;
- *add* over an existing file replaces it, and is reported as an update, so that what goes away can be seen;
- *delete* and *update* need the file; *move* needs its destination to be free (delete it first, in the same patch);
- what was added and deleted again is no change; a file that was moved on and on is moved once;
- paths are resolved by text against `cwd`; absolute ones and ones that lead out of it are left to the sandbox.

`TextFile` owns line endings and matching. A hunk is looked for from the end of the previous one on, first exactly, then
without trailing white space, then without any surrounding white space, then with typographic punctuation read as plain;
the first of these that finds anything decides. Matched lines stay as the file has them: only what the patch removes or
adds changes. A place must be the only one: a hunk that fits several places is refused, unless its `@@` lines lead to
one. `unified` gives what changed as a diff without file headers; a carriage return stays at its line.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from posixpath import isabs, join, normpath
from typing import Final, NamedTuple, Never, TypeAlias

from treadle.tools.patch.grammar import AddFile, DeleteFile, FileChange, Hunk, Patch, PatchError, Section, UpdateFile

MAX_FILE_BYTES: Final = 64 * 1024 * 1024  # a text file that large is no source that a model edits by hunks


def plan(patch: Patch, read: Callable[[str], bytes | None], cwd: str) -> list[FileChange]:
    """The net changes in the order in which the patch first names the files.

    `read` is given absolute paths and returns `None` for a file that does not exist; what it raises is passed on. It is
    called once for each of `paths(patch, cwd)`. `PatchError` (`mismatch`) when the patch does not fit.
    """
    state = _State(read)
    for section in patch.sections:
        path = _resolve(section.path, cwd)
        match section:
            case AddFile():
                state.put(path, section.content.encode())
            case DeleteFile():
                _existing(section, path, state, "delete")
                state.drop(path)
            case UpdateFile():
                _update(section, path, state, cwd)
    return list(state.changes())


def paths(patch: Patch, cwd: str) -> list[str]:
    """The absolute paths that a patch names, in order: those that it reads and may write."""
    found: dict[str, None] = {}
    for section in patch.sections:
        found[_resolve(section.path, cwd)] = None
        if isinstance(section, UpdateFile) and section.move_path is not None:
            found[_resolve(section.move_path, cwd)] = None
    return list(found)


def _resolve(path: str, cwd: str) -> str:
    if not isabs(cwd):
        raise ValueError(f"cwd must be absolute, not {cwd!r}")
    absolute = normpath(join(cwd, path))
    return absolute[1:] if absolute.startswith("//") else absolute


class _State:
    """The files as the sections so far leave them. `_origins` says which file a moved one was at first."""

    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        self._read = read
        self._before: dict[str, bytes | None] = {}
        self._now: dict[str, bytes | None] = {}
        self._origins: dict[str, str] = {}

    def get(self, path: str) -> bytes | None:
        if path not in self._before:
            self._before[path] = self._now[path] = self._read(path)
        return self._now[path]

    def put(self, path: str, data: bytes) -> None:
        self.get(path)
        self._now[path] = data

    def drop(self, path: str) -> None:
        self._now[path] = None
        self._origins.pop(path, None)

    def move(self, path: str, target: str, data: bytes) -> None:
        origin = self._origins.get(path, path)
        self.drop(path)
        self.put(target, data)
        if self._before[origin] is not None:
            self._origins[target] = origin

    def changes(self) -> Iterator[FileChange]:
        moves = {origin: target for target, origin in self._origins.items() if self._now[origin] is None}
        arrived = set(moves.values())
        for path, old in self._before.items():
            if path in moves:
                target = moves[path]
                new = self._now[target]
                yield FileChange(
                    path=path,
                    kind="update",
                    old=old,
                    new=new,
                    diff=f"{unified(old or b'', new or b'')}\n\nMoved to: {target}",
                    move_path=target,
                    move_old=self._before[target],
                )
            elif path not in arrived and (change := _change(path, old, self._now[path])) is not None:
                yield change


def _change(path: str, old: bytes | None, new: bytes | None) -> FileChange | None:
    if old is None and new is None:
        return None
    if old is None:
        return FileChange(path=path, kind="add", old=None, new=new, diff=text_of(new))
    if new is None:
        return FileChange(path=path, kind="delete", old=old, new=None, diff=text_of(old))
    return FileChange(path=path, kind="update", old=old, new=new, diff=unified(old, new))


def _update(section: UpdateFile, path: str, state: _State, cwd: str) -> None:
    data = _existing(section, path, state, "update")
    if len(data) > MAX_FILE_BYTES:
        raise _refused(section, path, f"{path} has {len(data)} bytes, more than {MAX_FILE_BYTES}: edit it by a command")
    new = TextFile(path, data).patched(section.hunks)
    target = path if section.move_path is None else _resolve(section.move_path, cwd)
    if target == path:
        state.put(path, new)
        return
    if state.get(target) is not None:
        raise _refused(
            section,
            target,
            f"cannot move {path} to {target}: there is a file; put *** Delete File before, or update it",
        )
    state.move(path, target, new)


def _existing(section: Section, path: str, state: _State, verb: str) -> bytes:
    data = state.get(path)
    if data is None:
        raise _refused(section, path, f"cannot {verb} {path}: there is no such file; check the path")
    return data


def _refused(section: Section, path: str, message: str) -> PatchError:
    return PatchError(f"{message} (line {section.line} of the patch)", "mismatch", line=section.line, path=path)


# --- where hunks belong in a file -------------------------------------------------------------------------------------


_SHOWN_LINES: Final = 12
_SHOWN_CHARS: Final = 200
_SHOWN_PLACES: Final = 5
_MAX_ANCHORS: Final = 1000  # occurrences of one `@@` line that are tried
_PLAIN: Final = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
        "\u2026": "...",
        "\ufeff": None,
    }
)


def _plain(line: str) -> str:
    return line.translate(_PLAIN).strip()


_STAGES: Final[tuple[Callable[[str], str], ...]] = (str, str.rstrip, str.strip, _plain)


class FileLine(NamedTuple):
    text: str
    ending: str


class Edit(NamedTuple):
    """Lines `start` to `stop` (behind the last) become `lines`."""

    start: int
    stop: int
    lines: list[FileLine]


class _Haystack(NamedTuple):
    """Every line with a newline before it, and one at the end; `offsets` are the places of these newlines."""

    text: str
    offsets: list[int]

    @classmethod
    def of(cls, lines: list[str]) -> _Haystack:
        offsets = list(accumulate((len(line) + 1 for line in lines), initial=0))
        return cls("".join(f"\n{line}" for line in lines) + "\n", offsets)


class TextFile:
    """A file as lines. Bytes that are no UTF-8 survive untouched."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        *whole, rest = data.decode("utf-8", "surrogateescape").split("\n")
        lines = [FileLine(text[:-1], "\r\n") if text.endswith("\r") else FileLine(text, "\n") for text in whole]
        self._lines = [*lines, FileLine(rest, "")] if rest else lines
        crlf = sum(line.ending == "\r\n" for line in self._lines)
        self._ending = "\r\n" if crlf * 2 > len(self._lines) else "\n"
        self._unfinished = bool(self._lines) and not self._lines[-1].ending
        self._haystacks: dict[Callable[[str], str], _Haystack] = {}

    def patched(self, hunks: Sequence[Hunk]) -> bytes:
        """The file with all hunks done. New lines get the ending that most lines have; a file without a newline at
        its end stays without."""
        edits: list[Edit] = []
        cursor = 0
        for hunk in hunks:
            edit = self._locate(hunk, cursor)
            cursor = edit.stop
            edits.append(edit)
        lines = list(self._lines)
        for edit in reversed(edits):
            lines[edit.start : edit.stop] = edit.lines
        if not lines:
            return b""
        ended = [line.text + (line.ending or self._ending) for line in lines[:-1]]
        last = lines[-1].text + ("" if self._unfinished else lines[-1].ending or self._ending)
        return ("".join(ended) + last).encode("utf-8", "surrogateescape")

    # --- one hunk ---

    def _locate(self, hunk: Hunk, cursor: int) -> Edit:
        old = [line.text for line in hunk.lines if line.mark != "+"]
        if not old:
            at = self._insertion(hunk, cursor)
            return self._edit(hunk, at)
        places = self._places(hunk, old, cursor)
        if not places and (shorter := _without_last_empty(hunk)) is not None:
            # A model often writes the empty line that it thinks the final newline is.
            hunk = shorter
            old = [line.text for line in hunk.lines if line.mark != "+"]
            places = self._places(hunk, old, cursor)
        if not places:
            self._unmatched(hunk, old, cursor)
        if len(places) > 1:
            self._ambiguous(hunk, old, places)
        return self._edit(hunk, places[0])

    def _edit(self, hunk: Hunk, start: int) -> Edit:
        lines: list[FileLine] = []
        at = start
        for mark, text in ((line.mark, line.text) for line in hunk.lines):
            if mark == "+":
                lines.append(FileLine(text, self._ending))
                continue
            if mark == " ":
                lines.append(self._lines[at])
            at += 1
        return Edit(start, at, lines)

    def _insertion(self, hunk: Hunk, cursor: int) -> int:
        """Where lines without context go: behind the anchor, else to the end of the file."""
        if hunk.at_end or not hunk.anchors:
            return len(self._lines)
        places = sorted({anchor + 1 for anchor in self._anchored(hunk.anchors, cursor)})
        if not places:
            self._unmatched(hunk, [], cursor)
        if len(places) > 1:
            self._ambiguous(hunk, [], [place - 1 for place in places])
        return places[0]

    def _places(self, hunk: Hunk, old: list[str], cursor: int) -> list[int]:
        """Where the lines may be meant, at the first stage that finds any: at most a few, more than one is doubt."""
        if hunk.at_end:
            return self._at_end(hunk, old, cursor)
        if not hunk.anchors:
            return _first_found(lambda stage: self._find(old, stage, cursor), _SHOWN_PLACES)
        found = set()
        for anchor in self._anchored(hunk.anchors, cursor):
            # The line itself may be repeated as context; that reading comes second.
            place = self._first(old, anchor + 1)
            if place is None:
                place = self._first(old, anchor)
            if place is not None:
                found.add(place)
        return sorted(found)[:_SHOWN_PLACES]

    def _at_end(self, hunk: Hunk, old: list[str], cursor: int) -> list[int]:
        start = len(self._lines) - len(old)
        if start < cursor:
            return []
        if hunk.anchors and not any(anchor <= start for anchor in self._anchored(hunk.anchors, cursor)):
            return []
        tail = [line.text for line in self._lines[start:]]
        fits = any([stage(line) for line in tail] == [stage(line) for line in old] for stage in _STAGES)
        return [start] if fits else []

    def _first(self, old: list[str], start: int) -> int | None:
        found = _first_found(lambda stage: self._find(old, stage, start), 1)
        return found[0] if found else None

    def _anchored(self, anchors: tuple[str, ...], cursor: int) -> list[int]:
        """The lines that the last `@@` leads to, for every line that the first one may mean."""
        first, *others = anchors
        found = []
        for at in _first_found(lambda stage: self._find([first], stage, cursor), _MAX_ANCHORS):
            place: int | None = at
            for anchor in others:
                place = None if place is None else self._first([anchor], place + 1)
            if place is not None:
                found.append(place)
        return found

    def _find(self, wanted: list[str], stage: Callable[[str], str], start: int) -> Iterator[int]:
        """The line numbers from `start` on where the wanted lines stand, as a stage sees them.

        A search in one string: linear, in C, also for files of a million equal lines.
        """
        if stage not in self._haystacks:
            self._haystacks[stage] = _Haystack.of([stage(line.text) for line in self._lines])
        text, offsets = self._haystacks[stage]
        needle = "".join(f"\n{stage(line)}" for line in wanted) + "\n"
        at = text.find(needle, offsets[start])
        while at >= 0:
            yield bisect_left(offsets, at)
            at = text.find(needle, at + 1)

    # --- refusals ---

    def _unmatched(self, hunk: Hunk, old: list[str], cursor: int) -> Never:
        what = f"cannot find the lines of the hunk at line {hunk.line} of the patch in {self.path}"
        hint = "read the file again and copy the lines exactly"
        if hunk.anchors and not self._anchored(hunk.anchors, cursor):
            what = f"cannot find @@ {_cut(' / @@ '.join(hunk.anchors))} of line {hunk.line} of the patch in {self.path}"
            hint = "an @@ line must repeat a whole line of the file"
        elif hunk.at_end:
            what += " at its end"
            hint += ", or leave out *** End of File"
        elif old and cursor and (earlier := self._first(old, 0)) is not None:
            hint = f"they are at line {earlier + 1}, before the end of the previous hunk: put hunks in the file's order"
        raise PatchError(f"{what}; {hint}{_shown(old)}", "mismatch", line=hunk.line, path=self.path)

    def _ambiguous(self, hunk: Hunk, old: list[str], places: list[int]) -> Never:
        lines = ", ".join(str(place + 1) for place in places[:_SHOWN_PLACES])
        more = ", …" if len(places) >= _SHOWN_PLACES else ""
        raise PatchError(
            f"the hunk at line {hunk.line} of the patch fits several places in {self.path} (lines {lines}{more}); "
            f"add lines of context, or @@ lines that lead to one of them{_shown(old)}",
            "mismatch",
            line=hunk.line,
            path=self.path,
        )


def _first_found(search: Callable[[Callable[[str], str]], Iterator[int]], most: int) -> list[int]:
    for stage in _STAGES:
        if found := list(islice(search(stage), most)):
            return found
    return []


def _without_last_empty(hunk: Hunk) -> Hunk | None:
    lines = list(hunk.lines)
    while lines and lines[-1].mark == " " and not lines[-1].text:
        lines.pop()
    if len(lines) == len(hunk.lines) or all(line.mark == "+" for line in lines):
        return None
    return Hunk(line=hunk.line, anchors=hunk.anchors, lines=tuple(lines), at_end=hunk.at_end)


def _shown(old: list[str]) -> str:
    if not old:
        return ""
    more = [f"… and {len(old) - _SHOWN_LINES} lines more"] if len(old) > _SHOWN_LINES else []
    return "\n".join([". Looked for:", *(_cut(line) for line in old[:_SHOWN_LINES]), *more])


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


# --- the diff of a change ---------------------------------------------------------------------------------------------


CONTEXT: Final = 3
MAX_PRODUCT: Final = 4_000_000  # lines × lines: beyond it, comparing takes seconds, and one large hunk says as much
Opcode: TypeAlias = tuple[str, int, int, int, int]


def text_of(data: bytes | None) -> str:
    """The text of a file, to be shown: what is no UTF-8 becomes the replacement character."""
    return (data or b"").decode("utf-8", "replace")


def unified(old: bytes, new: bytes) -> str:
    """The hunks, empty when nothing changed."""
    before, after = _lines(text_of(old)), _lines(text_of(new))
    return "".join(_hunk(group, before, after) for group in _groups(_opcodes(before, after)))


def _lines(text: str) -> list[str]:
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines


def _opcodes(old: list[str], new: list[str]) -> list[Opcode]:
    """The differences in order, equal stretches left out. Equal ends are cut off first: edits are mostly small."""
    shortest = min(len(old), len(new))
    head = next((at for at in range(shortest) if old[at] != new[at]), shortest)
    tail = next((at for at in range(shortest - head) if old[-1 - at] != new[-1 - at]), shortest - head)
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    if not left and not right:
        return []
    if not left or not right or len(left) * len(right) > MAX_PRODUCT:
        return [("replace", head, head + len(left), head, head + len(right))]
    from difflib import SequenceMatcher  # loaded with the first patch

    found = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    return [(tag, head + a, head + b, head + c, head + d) for tag, a, b, c, d in found if tag != "equal"]


def _groups(opcodes: list[Opcode]) -> Iterator[list[Opcode]]:
    """Differences that are near enough to share a hunk."""
    group: list[Opcode] = []
    for opcode in opcodes:
        if group and opcode[1] - group[-1][2] > 2 * CONTEXT:
            yield group
            group = []
        group.append(opcode)
    if group:
        yield group


def _hunk(group: list[Opcode], old: list[str], new: list[str]) -> str:
    before = min(CONTEXT, group[0][1])
    after = min(CONTEXT, len(old) - group[-1][2])
    first, last = group[0][1] - before, group[-1][2] + after
    out = [f"@@ -{_range(first, last)} +{_range(group[0][3] - before, group[-1][4] + after)} @@\n"]
    at = first
    for _, start, stop, new_start, new_stop in group:
        out += [_marked(" ", line) for line in old[at:start]]
        out += [_marked("-", line) for line in old[start:stop]]
        out += [_marked("+", line) for line in new[new_start:new_stop]]
        at = stop
    out += [_marked(" ", line) for line in old[at:last]]
    return "".join(out)


def _range(start: int, stop: int) -> str:
    count = stop - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


def _marked(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
