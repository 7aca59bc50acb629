"""What happened in a turn as HTML: messages, commands, changes, tools, the plan. Pure but for the pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from treadle.cli.threads.figures import duration
from treadle.cli.threads.html.escaped import escaped, escaped_line
from treadle.cli.threads.html.pictures import Pictures
from treadle.cli.threads.html.safe_markdown import rendered
from treadle.cli.threads.page_blocks import (
    Block,
    Changed,
    Noted,
    Picture,
    Proposed,
    Ran,
    Said,
    Thought,
    Used,
    shortened,
)
from treadle.protocol.app.thread_notifications import TurnPlanStep

# Of an output and of a diff: the first lines and the last ones. The whole is in the JSON export.
HEAD_LINES: Final = 400
TAIL_LINES: Final = 100
_MAX_LINE: Final = 2_000
# A diff up to this long is shown at once; a longer one unfolds.
_OPEN_DIFF: Final = 40
_TICKS: Final = {"completed": ("done", "✓"), "inProgress": ("now", "▸")}


def block_html(block: Block, pictures: Pictures) -> str:
    if isinstance(block, (Said, Used)):
        shown = "".join(_picture(picture, pictures) for picture in block.pictures)
        return _said(block, shown) if isinstance(block, Said) else _used(block, shown)
    draw: Callable[[Any], str] = _DRAWN[type(block)]
    return draw(block)


def plan_html(plan: Sequence[TurnPlanStep]) -> str:
    if not plan:
        return ""
    done = sum(step.status == "completed" for step in plan)
    steps = []
    for step in plan:
        kind, tick = _TICKS.get(str(step.status), ("open", "○"))
        steps.append(
            f'<li class="{kind}"><span class="tick">{tick}</span><span>{escaped_line(step.step)}</span></li>\n'
        )
    return (
        f'<div class="card plan"><p class="label">Plan <span class="figures">{done} of {len(plan)} done</span></p>\n'
        f"<ol>\n{''.join(steps)}</ol></div>\n"
    )


# --- messages --------------------------------------------------------------------------------------------------------


def _said(block: Said, pictures: str) -> str:
    who, kind = ("You", "user") if block.by == "user" else ("Agent", "aside" if block.aside else "agent")
    text = rendered(block.text, breaks=block.by == "user") if block.text.strip() else ""
    return f'<article class="{kind}"><p class="label">{who}</p>{_text(text + pictures)}</article>\n'


def _text(inner: str) -> str:
    return f'<div class="text" dir="auto">\n{inner}</div>'


def _thought(block: Thought) -> str:
    return (
        '<details class="thought"><summary><span class="what">Thought</span>'
        f'<span class="first">{escaped_line(_first_words(block.text))}</span></summary>\n'
        f"{_text(rendered(block.text))}</details>\n"
    )


def _first_words(text: str) -> str:
    return " ".join(text.replace("*", "").split())[:120]


def _proposed(block: Proposed) -> str:
    return f'<div class="card"><p class="label">Proposed plan</p>{_text(rendered(block.text))}</div>\n'


def _noted(block: Noted) -> str:
    text = _text(rendered(block.text)) if block.text.strip() else ""
    return f'<div class="note"><p>{escaped_line(block.title)}</p>{text}</div>\n'


# --- commands and tools ----------------------------------------------------------------------------------------------


def _ran(block: Ran) -> str:
    shown = " ".join(block.command.split())
    figures = _figures(block.outcome, block.duration_ms)
    whole = (
        f'<pre class="command">{escaped(block.command)}</pre>\n'
        if "\n" in block.command.strip() or len(shown) > 80
        else ""
    )
    output = _pre(block.output) if block.output.strip() else '<p class="none">no output</p>\n'
    return (
        f'<details class="card run{_bad(block.failed)}"><summary><span class="what">$</span>'
        f"<code>{escaped_line(shown)}</code>{figures}</summary>\n"
        f'<p class="where">in {escaped_line(block.cwd)}</p>\n{whole}{output}</details>\n'
    )


def _used(block: Used, pictures: str) -> str:
    figures = _figures(block.outcome, block.duration_ms)
    head = f'<span class="what">⚙</span><code>{escaped_line(block.title)}</code>{figures}'
    kind = f"card tool{_bad(block.failed)}"
    if not block.given.strip() and not block.got.strip():
        return f'<div class="{kind}"><p class="summary">{head}</p>{pictures}</div>\n'
    given = f'<p class="where">given</p>\n{_pre(block.given)}' if block.given.strip() else ""
    got = f'<p class="where">result</p>\n{_pre(block.got)}' if block.got.strip() else ""
    return f'<details class="{kind}"><summary>{head}</summary>\n{given}{got}{pictures}</details>\n'


def _figures(outcome: str, duration_ms: int | None) -> str:
    told = [outcome] if outcome else []
    told += [] if duration_ms is None else [duration(duration_ms)]
    return f'<span class="figures">{escaped_line(" · ".join(told))}</span>' if told else ""


def _bad(failed: bool) -> str:
    return " bad" if failed else ""


def _pre(text: str) -> str:
    head, hidden, tail = shortened(text.rstrip("\n").splitlines(), HEAD_LINES, TAIL_LINES)
    lines = [_cut(line) for line in head]
    if hidden:
        lines += [f'<span class="gap">… {hidden:,} lines left out …</span>', *map(_cut, tail)]
    return f"<pre>{chr(10).join(lines)}</pre>\n"


def _cut(line: str) -> str:
    more = f" … {len(line) - _MAX_LINE:,} more" if len(line) > _MAX_LINE else ""
    return escaped(line[:_MAX_LINE]) + more


# --- changes ---------------------------------------------------------------------------------------------------------


def _changed(block: Changed) -> str:
    unfolded = " open" if len(block.lines) <= _OPEN_DIFF else ""
    outcome = "" if block.outcome is None else f'<span class="figures">{escaped_line(block.outcome)}</span>'
    counts = f'<span class="figures"><ins>+{block.added}</ins> <del>−{block.removed}</del></span>'
    return (
        f'<details class="card change{_bad(block.outcome is not None)}"{unfolded}><summary>'
        f'<span class="what">{escaped_line(block.verb)}</span><code>{escaped_line(block.path)}</code>'
        f"{outcome}{counts}</summary>\n{_diff(block.lines)}</details>\n"
    )


def _diff(lines: Sequence[str]) -> str:
    head, hidden, tail = shortened(list(lines), HEAD_LINES, TAIL_LINES)
    shown = [_diff_line(line) for line in head]
    if hidden:
        shown += [f'<span class="gap">… {hidden:,} lines left out …</span>', *map(_diff_line, tail)]
    return f'<pre class="diff"><code>{"".join(shown)}</code></pre>\n'


def _diff_line(line: str) -> str:
    kind = {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "same")
    return f'<span class="{kind}">{_cut(line) or " "}</span>'


# --- pictures --------------------------------------------------------------------------------------------------------


def _picture(picture: Picture, pictures: Pictures) -> str:
    address = pictures.address(picture)
    name = escaped_line(picture.name[:200])
    if address is None:
        return f'<p class="none">picture: {name}</p>\n'
    return f'<p><img src="{address}" alt="{name}"></p>\n'


_DRAWN: Final[dict[type, Callable[[Any], str]]] = {
    Thought: _thought,
    Proposed: _proposed,
    Noted: _noted,
    Ran: _ran,
    Changed: _changed,
}
