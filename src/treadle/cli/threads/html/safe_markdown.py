"""Markdown of a stranger as HTML: no tags of theirs, links to the web only, nothing that is fetched. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping, Sequence
from functools import cache
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from treadle.cli.threads.html.escaped import escaped
from treadle.cli.visible import visible

# Beyond this a text is shown as it is: rendering takes about 2 s per mebibyte, more when somebody tries hard.
MAX_MARKDOWN: Final = 100_000
_WEB: Final = re.compile(r"(?:https?://|mailto:)[^\s]", re.IGNORECASE)
_DEEPEST: Final = 40

_Environment = MutableMapping[str, Any]


def rendered(text: str, *, breaks: bool = False) -> str:
    """Block elements. With `breaks` a line end is one: people type so, models do not."""
    if len(text) > MAX_MARKDOWN:
        return f'<pre class="plain">{escaped(text)}</pre>\n'
    markdown = _renderer(breaks)
    tokens = markdown.parse(visible(text))
    _make_visible(tokens)
    return str(markdown.renderer.render(tokens, markdown.options, {}))


def _make_visible(tokens: Iterable[Token]) -> None:
    """What was written as `&#8238;` is a letter only now."""
    for token in tokens:
        token.content = visible(token.content)
        token.attrs = {name: visible(str(value)) for name, value in token.attrs.items()}
        _make_visible(token.children or ())


@cache
def _renderer(breaks: bool) -> MarkdownIt:
    options = {"html": False, "maxNesting": _DEEPEST, "breaks": breaks}
    return MarkdownIt("commonmark", options, renderer_cls=_Safe).enable(["table", "strikethrough"])


class _Safe(RendererHTML):
    """A link that does not lead to the web, such as one to a file of the machine, is a name with its target as a hint.
    A picture is a link: nothing is fetched."""

    def link_open(self, tokens: Sequence[Token], index: int, _options: object, _environment: _Environment) -> str:
        return _opening(str(tokens[index].attrGet("href") or ""))

    def link_close(self, tokens: Sequence[Token], index: int, _options: object, _environment: _Environment) -> str:
        return "</a>" if _is_web(_target_of_closing(tokens, index)) else "</span>"

    def image(self, tokens: Sequence[Token], index: int, _options: object, _environment: _Environment) -> str:
        source = str(tokens[index].attrGet("src") or "")
        name = escapeHtml(tokens[index].content or "picture")
        return f"{_opening(source)}{name}{'</a>' if _is_web(source) else '</span>'}"

    def fence(self, tokens: Sequence[Token], index: int, _options: object, _environment: _Environment) -> str:
        return f"<pre><code>{escapeHtml(tokens[index].content)}</code></pre>\n"

    def table_open(self, *_: object) -> str:
        return '<div class="wide"><table>\n'

    def table_close(self, *_: object) -> str:
        return "</table></div>\n"

    def th_open(self, tokens: Sequence[Token], index: int, _options: object, _environment: _Environment) -> str:
        return f"<th{_alignment(tokens[index])}>"

    def td_open(self, tokens: Sequence[Token], index: int, _options: object, _environment: _Environment) -> str:
        return f"<td{_alignment(tokens[index])}>"


def _alignment(token: Token) -> str:
    """As a class: the page allows no style in an element."""
    side = str(token.attrGet("style") or "").removeprefix("text-align:")
    return f' class="to-{side}"' if side in ("right", "center") else ""


def _is_web(target: str) -> bool:
    return _WEB.match(target) is not None


def _opening(target: str) -> str:
    if _is_web(target):
        return f'<a href="{escapeHtml(target)}" rel="noopener noreferrer nofollow">'
    return f'<span class="elsewhere" title="{escapeHtml(target)}">'


def _target_of_closing(tokens: Sequence[Token], index: int) -> str:
    """Links are never inside of links, so it is the last one that was opened."""
    opened = next(token for token in reversed(tokens[:index]) if token.type == "link_open")
    return str(opened.attrGet("href") or "")
