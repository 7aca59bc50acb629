"""Text, Markdown and pictures of others in an HTML page. Pure.

Nothing in a text is taken for markup, and nothing changes the order of letters. Markdown keeps its own tags to itself,
links lead to the web only, and nothing is fetched. A picture is inside of the page, if its content is one; never a
drawing that may have code in it (SVG).
"""

from __future__ import annotations

import binascii
import html
import re
from collections.abc import Iterable, MutableMapping, Sequence
from functools import cache
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from pybase64 import b64decode, b64encode

from treadle.pages.safe_text import printable, printable_line
from treadle.pages.view_blocks import Picture, sent_key
from treadle.tools.view_image import image_type

# Beyond this a text is shown as it is: rendering takes about 2 s per mebibyte, more when somebody tries hard.
MAX_MARKDOWN: Final = 100_000
_WEB: Final = re.compile(r"(?:https?://|mailto:)[^\s]", re.IGNORECASE)
_DEEPEST: Final = 40

# Of a picture, and of all pictures of a page.
MAX_BYTES: Final = 2 * 1024 * 1024
MAX_ALL: Final = 20 * 1024 * 1024
_INLINE: Final = re.compile(r"data:image/[a-z+.-]{1,20};base64,", re.IGNORECASE)

_Environment = MutableMapping[str, Any]


def escaped(text: str) -> str:
    """Text for the content of an element or a quoted attribute. Control and direction characters become printable."""
    return html.escape(printable(text), quote=True)


def escaped_line(text: str) -> str:
    return html.escape(printable_line(text), quote=True)


# --- Markdown ---


def rendered(text: str, *, breaks: bool = False) -> str:
    """Block elements. With `breaks` a line end is one: people type so, models do not."""
    if len(text) > MAX_MARKDOWN:
        return f'<pre class="plain">{escaped(text)}</pre>\n'
    markdown = _renderer(breaks)
    tokens = markdown.parse(printable(text))
    _make_visible(tokens)
    return str(markdown.renderer.render(tokens, markdown.options, {}))


def _make_visible(tokens: Iterable[Token]) -> None:
    """What was written as `&#8238;` is a letter only now."""
    for token in tokens:
        token.content = printable(token.content)
        token.attrs = {name: printable(str(value)) for name, value in token.attrs.items()}
        _make_visible(token.children or ())


@cache
def _renderer(breaks: bool) -> MarkdownIt:
    options = {"html": False, "maxNesting": _DEEPEST, "breaks": breaks}
    return MarkdownIt("commonmark", options, renderer_cls=_SafeRenderer).enable(["table", "strikethrough"])


class _SafeRenderer(RendererHTML):
    """A link that does not lead to the web, such as one to a file of the machine, is a name with its target as a hint.
    A picture is a link: nothing is fetched."""

    def link_open(self, tokens: Sequence[Token], index: int, _options: object, _environment: _Environment) -> str:
        return _opening(str(tokens[index].attrGet("href") or ""))

    def link_close(self, tokens: Sequence[Token], index: int, _options: object, _environment: _Environment) -> str:
        # Links are never inside of links, so it is the last one that was opened.
        opened = next(token for token in reversed(tokens[:index]) if token.type == "link_open")
        return _closing(str(opened.attrGet("href") or ""))

    def image(self, tokens: Sequence[Token], index: int, _options: object, _environment: _Environment) -> str:
        source = str(tokens[index].attrGet("src") or "")
        name = escapeHtml(tokens[index].content or "picture")
        return f"{_opening(source)}{name}{_closing(source)}"

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
    """The alignment as a class: the page allows no style in an element."""
    side = str(token.attrGet("style") or "").removeprefix("text-align:")
    return f' class="to-{side}"' if side in ("right", "center") else ""


def _opening(target: str) -> str:
    if _WEB.match(target):
        return f'<a href="{escapeHtml(target)}" rel="noopener noreferrer nofollow">'
    return f'<span class="elsewhere" title="{escapeHtml(target)}">'


def _closing(target: str) -> str:
    return "</a>" if _WEB.match(target) else "</span>"


# --- pictures ---


class Pictures:
    """The pictures of one page: gives the addresses of those that are known, as long as there is room.

    A file is never read: it may have changed since the model saw it, and its path may lead to something else by now.
    """

    def __init__(self, room: int = MAX_ALL) -> None:
        self._room = room
        self.seen: dict[str, list[str]] | None = None
        """The pictures that `ThreadLibrary.seen_pictures` gives, once a file is to be shown."""
        self.turn: int = 0
        """The number of the turn that is being written."""

    def address(self, picture: Picture) -> str | None:
        """A `data:` address whose content is known to be a picture; None when there is none to show."""
        url = picture.url
        if picture.path is not None:
            known = (self.seen or {}).get(picture.id or sent_key(self.turn, picture.path))
            url = known.pop(0) if known else None
        found = _INLINE.match(url or "")
        if url is None or found is None or len(url) > MAX_BYTES * 4 // 3 + 100:
            return None
        try:
            data = b64decode(url[found.end() :], validate=True)
        except (binascii.Error, ValueError):
            return None
        kind = image_type(data)
        if kind is None or len(data) > self._room:
            return None
        self._room -= len(data)
        return f"data:{kind};base64,{b64encode(data).decode()}"
