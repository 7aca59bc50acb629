"""Text of others in a Markdown document: what they leave open, or what is HTML, must not swallow the rest. Pure."""

from __future__ import annotations

import html
import re
from functools import cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from treadle.cli.visible import visible, visible_line

_BACKTICKS: Final = re.compile(r"`+")
_CODE_SPAN: Final = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
# As with HTML: beyond this a text is shown as it is.
MAX_MARKDOWN: Final = 100_000


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any in the text."""
    shown = visible(text).rstrip("\n")
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(shown)), default=0))
    return f"{fence}{language}\n{shown}\n{fence}\n"


def code(text: str) -> str:
    """One line of code inside a block of HTML."""
    return f"<code>{html.escape(visible_line(text), quote=False)}</code>"


def span(text: str) -> str:
    """One line of code inside Markdown."""
    shown = visible_line(text)
    ticks = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(shown)), default=0))
    room = " " if shown[:1] in ("`", " ") or shown[-1:] in ("`", " ") else ""
    return f"{ticks}{room}{shown}{room}{ticks}" if shown else ""


def plain(text: str) -> str:
    """One line in which nothing is markup."""
    return re.sub(r"([\\`*_\[\]<>|~#&])", r"\\\1", visible_line(text))


def embedded(text: str) -> str:
    """Markdown as part of a document: tags are shown, not obeyed, and what is open at the end is closed."""
    shown = visible(text).strip("\n")
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
