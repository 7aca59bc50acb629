"""`HtmlPage`: a thread as one page. It owns the frame: head, style, header, turns. Items are in `html_items`."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from treadle.cli.threads.facts import Tokens
from treadle.cli.threads.figures import clock, count, plural
from treadle.cli.threads.html.escaped import escaped, escaped_line
from treadle.cli.threads.html.html_items import block_html, plan_html
from treadle.cli.threads.html.pictures import Pictures
from treadle.cli.threads.html.token_chart import token_chart
from treadle.cli.threads.item_blocks import item_blocks
from treadle.cli.threads.page import Heading, turn_figures
from treadle.cli.threads.page_blocks import Changed, Ran
from treadle.protocol.app.items import ThreadItem, UserMessageThreadItem
from treadle.protocol.app.turns import Turn


class HtmlPage:
    def __init__(self) -> None:
        self._heading: Heading | None = None
        self._pictures = Pictures()
        self._plan = ""  # that of the turn, until it has its place
        self._commands = self._failed = 0
        self._files: set[str] = set()

    def head(self, heading: Heading) -> str:
        self._heading = heading
        title = escaped_line(heading.title) or "A conversation"
        return (
            f"{_document_head(title)}<body>\n<main>\n"
            f'<header class="top"><p class="kind">Treadle thread</p>\n<h1 dir="auto">{title}</h1>\n'
            f"{_rows(heading)}{_sums(heading)}{_chart(heading)}{_contents(heading)}</header>\n"
        )

    def turn_begun(self, number: int, turn: Turn) -> str:
        assert self._heading is not None
        facts = self._heading.facts.of(turn.id)
        self._plan = plan_html(facts.plan)
        told = [] if turn.started_at is None else [clock(turn.started_at, self._heading.zone)]
        figures = " · ".join([*told, *turn_figures(turn, facts)])
        return (
            f'<section class="turn" id="turn-{number}"><h2><a href="#turn-{number}">Turn {number}</a>'
            f'<span class="figures">{escaped_line(figures)}</span></h2>\n'
        )

    def item(self, item: ThreadItem) -> str:
        assert self._heading is not None
        pieces = [self._block(block) for block in item_blocks(item, self._heading.thread.cwd)]
        if isinstance(item, UserMessageThreadItem):
            pieces.append(self._take_plan())
        return "".join(pieces)

    def _block(self, block: object) -> str:
        if isinstance(block, Ran):
            self._commands += 1
            self._failed += block.failed
        elif isinstance(block, Changed) and block.outcome is None:
            self._files.add(block.path)
        return block_html(block, self._pictures)  # type: ignore[arg-type]

    def _take_plan(self) -> str:
        plan, self._plan = self._plan, ""
        return plan

    def turn_ended(self, turn: Turn) -> str:
        end = ""
        if turn.status == "failed":
            why = "it failed" if turn.error is None else turn.error.message
            end = f'<div class="card bad"><strong>The turn failed.</strong> {escaped(why)}</div>\n'
        elif turn.status in ("interrupted", "inProgress"):
            words = "The turn was interrupted." if turn.status == "interrupted" else "The turn was still running."
            end = f'<p class="note">{words}</p>\n'
        return f"{self._take_plan()}{end}</section>\n"

    def foot(self) -> str:
        failed = f" ({self._failed} failed)" if self._failed else ""
        told = [f"{plural(self._commands, 'command')}{failed}", f"{plural(len(self._files), 'file')} changed"]
        return f"<footer>{' · '.join(told)} · exported by Treadle</footer>\n</main>\n</body>\n</html>\n"


@cache
def _style() -> str:
    return files("treadle.cli.threads.html").joinpath("page.css").read_text("utf-8")


def _document_head(title: str) -> str:
    # Only this style, by its hash, and pictures in the page: whatever gets into it, nothing runs or is fetched.
    digest = b64encode(sha256(_style().encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<meta name="generator" content="Treadle">\n<title>{title}</title>\n<style>{_style()}</style>\n</head>\n'
    )


def _rows(heading: Heading) -> str:
    rows = "".join(f"<div><dt>{name}</dt><dd>{escaped_line(text)}</dd></div>\n" for name, text in heading.rows())
    return f'<dl class="rows">\n{rows}</dl>\n'


def _sums(heading: Heading) -> str:
    tiles = "".join(f"<li><strong>{escaped_line(text)}</strong> {name}</li>\n" for name, text in heading.sums())
    return f'<ul class="sums">\n{tiles}</ul>\n'


def _chart(heading: Heading) -> str:
    facts = heading.facts
    turns = [facts.of(turn.id).tokens or Tokens() for turn in heading.turns]
    drawing = token_chart(turns)
    if not drawing:
        return ""
    known = sum(turns, Tokens())
    legend = "".join(
        f'<li class="{kind}">{name} {count(amount)}</li>'
        for kind, name, amount in (
            ("cached", "cached input", known.cached),
            ("fresh", "input", known.fresh),
            ("output", "output", known.output),
        )
        if amount
    )
    return (
        f'<figure><figcaption>Tokens of each turn<ul class="legend">{legend}</ul></figcaption>\n{drawing}\n</figure>\n'
    )


def _contents(heading: Heading) -> str:
    """Where the turns are, for a conversation that has more than fit on a screen."""
    if len(heading.turns) < 4:
        return ""
    links = "".join(f'<a href="#turn-{number}">{number}</a>' for number in range(1, len(heading.turns) + 1))
    return f'<nav aria-label="Turns"><span>Turns</span>{links}</nav>\n'
