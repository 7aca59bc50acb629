"""`MarkdownPage`: a thread as Markdown that reads well on a forge and in an editor. Pure.

Text of others is part of the document: what it leaves open, and what is HTML in it, must not swallow the rest.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from treadle.pages.figures import duration
from treadle.pages.page import BlockPage, Heading
from treadle.pages.safe_text import printable, printable_line
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
HEAD_LINES: Final = 200
TAIL_LINES: Final = 50
_MAX_LINE: Final = 2_000
# As with HTML: beyond this a text is shown as it is.
MAX_MARKDOWN: Final = 100_000
_BACKTICKS: Final = re.compile(r"`+")
_CODE_SPAN: Final = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")


class MarkdownPage(BlockPage):
    def head(self, heading: Heading) -> str:
        self.heading = heading
        facts = [
            f"- {name}: {span(text) if name in ('thread', 'where', 'git', 'forked from') else plain(text)}\n"
            for name, text in [*heading.rows(), *heading.sums()]
        ]
        return f"# {plain(heading.title) or 'A conversation'}\n\n{''.join(facts)}"

    def turn_head(self, number: int, figures: str) -> str:
        return f"\n## Turn {number}\n\n" + (f"*{plain(figures)}*\n" if figures else "")

    def block(self, block: Block) -> str:
        return f"\n{_block(block)}"

    def plan(self, steps: Sequence[TurnPlanStep]) -> str:
        lines = [f"- [{'x' if step.status == 'completed' else ' '}] {plain(step.step)}" for step in steps]
        return "\n".join(["\n**Plan**\n", *lines, ""])

    def turn_end(self, turn: Turn) -> str:
        if turn.status == "failed":
            why = "" if turn.error is None else f" {plain(turn.error.message)}"
            return f"\n**The turn failed.**{why}\n"
        ends = {"interrupted": "\n*The turn was interrupted.*\n", "inProgress": "\n*The turn was still running.*\n"}
        return ends.get(str(turn.status), "")

    def foot(self) -> str:
        return "\n---\n\n*Exported by Treadle.*\n"


def _block(block: Block) -> str:
    match block:
        case MessageBlock(by="user"):
            return f"**You**\n\n{quoted(block.text) if block.text.strip() else ''}{_pictures(block.pictures)}"
        case MessageBlock():
            return f"**Agent**\n\n{embedded(block.text)}"
        case ThoughtBlock():
            return _folded("<em>thought</em>", embedded(block.text))
        case PlanBlock():
            return f"**Proposed plan**\n\n{embedded(block.text)}"
        case NoteBlock():
            return f"*{plain(block.title)}*\n" + (f"\n{embedded(block.text)}" if block.text.strip() else "")
        case CommandBlock():
            line = " ".join(block.command.split())
            whole = fenced(block.command, "sh") + "\n" if len(line) > 100 or "\n" in block.command.strip() else ""
            output = fenced(_shortened(block.output)) if block.output.strip() else "*no output*\n"
            title = f"{_mark(block.failed)}{code('$ ' + _cut(line, 100))} {_end(block)}"
            return _folded(title, whole + output)
        case ChangeBlock():
            outcome = "" if block.made else f" ({block.status})"
            title = f"{printable_line(block.verb)} {code(block.path)} +{block.added} −{block.removed}{outcome}"
            return _folded(f"{_mark(not block.made)}{title}", fenced(_shortened(block.lines), "diff"))
        case ToolBlock():
            name = _cut(block.title, 200)
            arguments = fenced(_shortened(block.arguments), "json") if block.arguments.strip() else ""
            result = fenced(_shortened(block.result)) if block.result.strip() else ""
            pictures = _pictures(block.pictures)
            if not arguments and not result:
                return f"{_mark(block.failed)}{span(name)} {_end(block)}".rstrip() + f"\n{pictures}"
            title = f"{_mark(block.failed)}{code(name)} {_end(block)}".rstrip()
            return _folded(title, "\n".join(filter(None, (arguments, result, pictures))))


def _mark(failed: bool) -> str:
    return "❌ " if failed else ""


def _end(block: CommandBlock | ToolBlock) -> str:
    took = "" if block.duration_ms is None else duration(block.duration_ms)
    return " · ".join(filter(None, (block.outcome, took)))


def _folded(title: str, body: str) -> str:
    """Forges fold it; elsewhere it reads as a title and a text. `title` is HTML on one line."""
    return f"<details><summary>{title}</summary>\n\n{body}\n</details>\n"


def _pictures(pictures: Sequence[Picture]) -> str:
    """The names of pictures: a picture of the machine is not where the document is read."""
    return "".join(f"\n*picture: {plain(_cut(picture.name, 200))}*\n" for picture in pictures)


def _shortened(text: str | Sequence[str]) -> str:
    """A text, or the lines of one."""
    lines = text.rstrip("\n").splitlines() if isinstance(text, str) else text
    head, hidden, tail = shortened([_cut(line, _MAX_LINE) for line in lines], HEAD_LINES, TAIL_LINES)
    return "\n".join([*head, f"… {hidden:,} lines left out …", *tail] if hidden else head)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


# --- text of others ---


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any in the text."""
    shown = printable(text).rstrip("\n")
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(shown)), default=0))
    return f"{fence}{language}\n{shown}\n{fence}\n"


def code(text: str) -> str:
    """One line of code inside a block of HTML."""
    return f"<code>{html.escape(printable_line(text), quote=False)}</code>"


def span(text: str) -> str:
    """One line of code inside Markdown."""
    shown = printable_line(text)
    ticks = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(shown)), default=0))
    room = " " if shown[:1] in ("`", " ") or shown[-1:] in ("`", " ") else ""
    return f"{ticks}{room}{shown}{room}{ticks}" if shown else ""


def plain(text: str) -> str:
    """One line in which nothing is markup."""
    return re.sub(r"([\\`*_\[\]<>|~#&])", r"\\\1", printable_line(text))


def embedded(text: str) -> str:
    """Markdown as part of a document: tags are shown, not obeyed, and what is open at the end is closed."""
    shown = printable(text).strip("\n")
    if len(shown) > MAX_MARKDOWN:
        return fenced(shown)
    gentle = _without_tags(shown, spare_spans=True)
    if any(_is_tag(token) for token in _parser().parse(gentle)):  # a span that only looked like one
        gentle = _without_tags(shown, spare_spans=False)
    return _closed(gentle) + "\n"


def quoted(text: str) -> str:
    """The same as a quotation, in which line ends stay."""
    body = embedded(text).rstrip("\n")
    code_lines = _code_lines(body)
    lines = body.split("\n")
    shown = []
    for number, line in enumerate(lines):
        breaks = line.strip() and number not in code_lines and number + 1 < len(lines) and lines[number + 1].strip()
        shown.append(f"> {line}{'  ' if breaks else ''}".rstrip() + ("  " if breaks else ""))
    return "\n".join(shown) + "\n"


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def _is_tag(token: Token) -> bool:
    return token.type in ("html_block", "html_inline") or any(map(_is_tag, token.children or ()))


def _code_lines(text: str) -> set[int]:
    lines: set[int] = set()
    for token in _parser().parse(text):
        if token.type in ("fence", "code_block") and token.map:
            lines.update(range(*token.map))
    return lines


def _without_tags(text: str, *, spare_spans: bool) -> str:
    """`<` as an entity where it would begin a tag. Code is left as it is."""
    # What is code is asked of the text without tags: in a block of HTML there is none.
    bare = _TAG.sub("&", text)
    code_lines = _code_lines(bare)
    pieces: list[str] = []
    prose: list[str] = []
    for number, line in enumerate(text.split("\n")):
        if number in code_lines:
            pieces += [*_harmless(prose, spare_spans), line]
            prose = []
        else:
            prose.append(line)
    return "\n".join([*pieces, *_harmless(prose, spare_spans)])


def _harmless(prose: list[str], spare_spans: bool) -> list[str]:
    if not prose:
        return []
    text = "\n".join(prose)
    if not spare_spans:
        return [_TAG.sub("&lt;", text)]
    shown, end = [], 0
    for span in _CODE_SPAN.finditer(text):
        shown += [_TAG.sub("&lt;", text[end : span.start()]), span.group()]
        end = span.end()
    return ["".join([*shown, _TAG.sub("&lt;", text[end:])])]


def _closed(text: str) -> str:
    """With the end of a fence that lacks one. A fence inside of something else ends with that."""
    fences = [token for token in _parser().parse(text) if token.type == "fence" and token.level == 0 and token.map]
    if not fences or fences[-1].map is None:
        return text
    lines = text.split("\n")
    first, end = fences[-1].map
    markup = fences[-1].markup
    last = lines[end - 1].strip() if end - 1 < len(lines) else ""
    is_closed = end - 1 > first and len(last) >= len(markup) and set(last) == {markup[0]}
    return text if is_closed or end < len(lines) else f"{text}\n{markup}"
