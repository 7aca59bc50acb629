"""`TextFile`: the lines of a file, and where the hunks of a patch belong in it.

Owns line endings and matching. A hunk is looked for from the end of the previous one on, first exactly, then without
trailing white space, then without any surrounding white space, then with typographic punctuation read as plain; the
first of these that finds anything decides. Matched lines stay as the file has them: only what the patch removes or adds
changes. A place must be the only one: a hunk that fits several places is refused, unless its `@@` lines lead to one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Final, NamedTuple, Never

from treadle.tools.patch.patch_values import Hunk, PatchError

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


def _exact(line: str) -> str:
    return line


def _plain(line: str) -> str:
    return line.translate(_PLAIN).strip()


_STAGES: Final[tuple[Callable[[str], str], ...]] = (_exact, str.rstrip, str.strip, _plain)


class Line(NamedTuple):
    text: str
    ending: str


class Edit(NamedTuple):
    """Lines `start` to `stop` (behind the last) become `lines`."""

    start: int
    stop: int
    lines: list[Line]


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
        self._lines = _split(data.decode("utf-8", "surrogateescape"))
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
        return self._join(lines).encode("utf-8", "surrogateescape")

    def _join(self, lines: list[Line]) -> str:
        if not lines:
            return ""
        ended = [line.text + (line.ending or self._ending) for line in lines[:-1]]
        last = lines[-1].text + ("" if self._unfinished else lines[-1].ending or self._ending)
        return "".join(ended) + last

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
        lines: list[Line] = []
        at = start
        for mark, text in ((line.mark, line.text) for line in hunk.lines):
            if mark == "+":
                lines.append(Line(text, self._ending))
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


def _split(text: str) -> list[Line]:
    *whole, rest = text.split("\n")
    lines = [Line(line[:-1], "\r\n") if line.endswith("\r") else Line(line, "\n") for line in whole]
    return [*lines, Line(rest, "")] if rest else lines


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
