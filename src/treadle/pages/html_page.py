"""`HtmlPage`: a thread as one HTML page that needs nothing else: no requests, no scripts. It can be sent as it is.

Text of others goes through `html_text` here, whatever it is.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from treadle.pages.figures import duration, plural
from treadle.pages.html_text import Pictures, escaped, escaped_line, rendered
from treadle.pages.page import BlockPage, Heading
from treadle.pages.view_blocks import (
    Block,
    ChangeBlock,
    CommandBlock,
    MessageBlock,
    NoteBlock,
    Picture,
    PlanBlock,
    ThoughtBlock,
    ToolBlock,
    shortened,
)
from treadle.protocol.app.notifications import TurnPlanStep
from treadle.protocol.app.turns import Turn

# Of an output and of a diff: the first lines and the last ones. The whole is in the JSON export.
HEAD_LINES: Final = 400
TAIL_LINES: Final = 100
_MAX_LINE: Final = 2_000
# A diff up to this long is shown at once; a longer one unfolds.
_OPEN_DIFF: Final = 40
_DIFF_CLASSES: Final = {"+": "add", "-": "del", "@": "hunk"}
_TICKS: Final = {"completed": ("done", "✓"), "inProgress": ("now", "▸")}


class HtmlPage(BlockPage):
    def __init__(self) -> None:
        super().__init__()
        self.pictures: Pictures = Pictures()
        self._commands = self._failed = 0
        self._files: set[str] = set()

    def head(self, heading: Heading) -> str:
        self.heading = heading
        title = escaped_line(heading.title) or "A conversation"
        rows = "".join(f"<div><dt>{name}</dt><dd>{escaped_line(text)}</dd></div>\n" for name, text in heading.rows())
        sums = "".join(f"<li><strong>{escaped_line(text)}</strong> {name}</li>\n" for name, text in heading.sums())
        contents = ""
        if len(heading.turns) >= 4:  # more than fit on a screen
            links = "".join(f'<a href="#turn-{number}">{number}</a>' for number in range(1, len(heading.turns) + 1))
            contents = f'<nav aria-label="Turns"><span>Turns</span>{links}</nav>\n'
        return (
            f"{_document_head(title)}<body>\n<main>\n"
            f'<header class="top"><p class="kind">Treadle thread</p>\n<h1 dir="auto">{title}</h1>\n'
            f'<dl class="rows">\n{rows}</dl>\n<ul class="sums">\n{sums}</ul>\n{contents}</header>\n'
        )

    def turn_head(self, number: int, figures: str) -> str:
        self.pictures.turn = number
        return (
            f'<section class="turn" id="turn-{number}"><h2><a href="#turn-{number}">Turn {number}</a>'
            f'<span class="figures">{escaped_line(figures)}</span></h2>\n'
        )

    def turn_end(self, turn: Turn) -> str:
        end = ""
        if turn.status == "failed":
            why = "it failed" if turn.error is None else turn.error.message
            end = f'<div class="card bad"><strong>The turn failed.</strong> {escaped(why)}</div>\n'
        elif turn.status in ("interrupted", "inProgress"):
            words = "The turn was interrupted." if turn.status == "interrupted" else "The turn was still running."
            end = f'<p class="note">{words}</p>\n'
        return f"{end}</section>\n"

    def foot(self) -> str:
        failed = f" ({self._failed} failed)" if self._failed else ""
        counts = f"{plural(self._commands, 'command')}{failed} · {plural(len(self._files), 'file')} changed"
        return f"<footer>{counts} · exported by Treadle</footer>\n</main>\n</body>\n</html>\n"

    def block(self, block: Block) -> str:
        match block:
            case MessageBlock():
                by_user = block.by == "user"
                who, kind = ("You", "user") if by_user else ("Agent", "aside" if block.commentary else "agent")
                text = rendered(block.text, breaks=by_user) if block.text.strip() else ""
                body = _text(text + self._pictures(block.pictures))
                return f'<article class="{kind}"><p class="label">{who}</p>{body}</article>\n'
            case ThoughtBlock():
                first_words = " ".join(block.text.replace("*", "").split())[:120]
                return (
                    '<details class="thought"><summary><span class="what">Thought</span>'
                    f'<span class="first">{escaped_line(first_words)}</span></summary>\n'
                    f"{_text(rendered(block.text))}</details>\n"
                )
            case PlanBlock():
                return f'<div class="card"><p class="label">Proposed plan</p>{_text(rendered(block.text))}</div>\n'
            case NoteBlock():
                text = _text(rendered(block.text)) if block.text.strip() else ""
                return f'<div class="note"><p>{escaped_line(block.title)}</p>{text}</div>\n'
            case CommandBlock():
                self._commands += 1
                self._failed += block.failed
                line = " ".join(block.command.split())
                whole = ""
                if "\n" in block.command.strip() or len(line) > 80:
                    whole = f'<pre class="command">{escaped(block.command)}</pre>\n'
                output = _pre(block.output) if block.output.strip() else '<p class="none">no output</p>\n'
                return (
                    f'<details class="card run{" bad" if block.failed else ""}"><summary><span class="what">$</span>'
                    f"<code>{escaped_line(line)}</code>{_figures(block.outcome, block.duration_ms)}</summary>\n"
                    f'<p class="where">in {escaped_line(block.cwd)}</p>\n{whole}{output}</details>\n'
                )
            case ChangeBlock():
                if block.made:
                    self._files.add(block.path)
                unfolded = " open" if len(block.lines) <= _OPEN_DIFF else ""
                outcome = "" if block.made else f'<span class="figures">{escaped_line(block.status)}</span>'
                counts = f'<span class="figures"><ins>+{block.added}</ins> <del>−{block.removed}</del></span>'
                rows = [
                    f'<span class="{_DIFF_CLASSES.get(line[:1], "same")}">{_cut(line) or " "}</span>'
                    for line in block.lines
                ]
                head, hidden, tail = shortened(rows, HEAD_LINES, TAIL_LINES)
                gap = [_gap(hidden)] if hidden else []
                return (
                    f'<details class="card change{"" if block.made else " bad"}"{unfolded}><summary>'
                    f'<span class="what">{escaped_line(block.verb)}</span><code>{escaped_line(block.path)}</code>'
                    f"{outcome}{counts}</summary>\n"
                    f'<pre class="diff"><code>{"".join([*head, *gap, *tail])}</code></pre>\n</details>\n'
                )
            case ToolBlock():
                pictures = self._pictures(block.pictures)
                figures = _figures(block.outcome, block.duration_ms)
                title = f'<span class="what">⚙</span><code>{escaped_line(block.title)}</code>{figures}'
                style = f"card tool{' bad' if block.failed else ''}"
                if not block.arguments.strip() and not block.result.strip():
                    return f'<div class="{style}"><p class="summary">{title}</p>{pictures}</div>\n'
                arguments = f'<p class="where">given</p>\n{_pre(block.arguments)}' if block.arguments.strip() else ""
                result = f'<p class="where">result</p>\n{_pre(block.result)}' if block.result.strip() else ""
                return f'<details class="{style}"><summary>{title}</summary>\n{arguments}{result}{pictures}</details>\n'

    def plan(self, steps: Sequence[TurnPlanStep]) -> str:
        done = sum(step.status == "completed" for step in steps)
        ticked = [(*_TICKS.get(str(step.status), ("open", "○")), escaped_line(step.step)) for step in steps]
        rows = [
            f'<li class="{kind}"><span class="tick">{tick}</span><span>{text}</span></li>\n'
            for kind, tick, text in ticked
        ]
        return (
            f'<div class="card plan"><p class="label">Plan <span class="figures">{done} of {len(steps)} done</span></p>'
            f"\n<ol>\n{''.join(rows)}</ol></div>\n"
        )

    def _pictures(self, pictures: Iterable[Picture]) -> str:
        shown = []
        for picture in pictures:
            address = self.pictures.address(picture)
            name = escaped_line(picture.name[:200])
            if address is None:
                shown.append(f'<p class="none">picture: {name}</p>\n')
            else:
                shown.append(f'<p><img src="{address}" alt="{name}"></p>\n')
        return "".join(shown)


@cache
def style() -> str:
    return files("treadle.pages").joinpath("page.css").read_text("utf-8")


def _document_head(title: str) -> str:
    # Only this style, by its hash, and pictures in the page: whatever gets into it, nothing runs or is fetched.
    digest = b64encode(sha256(style().encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<meta name="generator" content="Treadle">\n<title>{title}</title>\n<style>{style()}</style>\n</head>\n'
    )


def _text(inner: str) -> str:
    return f'<div class="text" dir="auto">\n{inner}</div>'


def _figures(outcome: str, duration_ms: int | None) -> str:
    figures = [outcome] if outcome else []
    figures += [] if duration_ms is None else [duration(duration_ms)]
    return f'<span class="figures">{escaped_line(" · ".join(figures))}</span>' if figures else ""


def _pre(text: str) -> str:
    head, hidden, tail = shortened(text.rstrip("\n").splitlines(), HEAD_LINES, TAIL_LINES)
    gap = [_gap(hidden)] if hidden else []
    return f"<pre>{chr(10).join([*map(_cut, head), *gap, *map(_cut, tail)])}</pre>\n"


def _gap(hidden: int) -> str:
    return f'<span class="gap">… {hidden:,} lines left out …</span>'


def _cut(line: str) -> str:
    more = f" … {len(line) - _MAX_LINE:,} more" if len(line) > _MAX_LINE else ""
    return escaped(line[:_MAX_LINE]) + more
