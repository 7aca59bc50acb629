"""Text of others in a page: nothing in it is taken for markup, and nothing in it changes the order of letters. Pure."""

from __future__ import annotations

import html

from treadle.cli.visible import visible, visible_line


def escaped(text: str) -> str:
    """For the content of an element and for a quoted attribute. Control and direction characters become visible."""
    return html.escape(visible(text), quote=True)


def escaped_line(text: str) -> str:
    return html.escape(visible_line(text), quote=True)
