"""The item that shows a web search, which the provider makes itself."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from treadle.llm import OtherItem
from treadle.protocol.app.items import (
    FindInPageWebSearchAction,
    OpenPageWebSearchAction,
    OtherWebSearchAction,
    SearchWebSearchAction,
    WebSearchAction,
    WebSearchThreadItem,
)


class _Action(Struct):
    type: str = ""
    query: str | None = None
    queries: tuple[str, ...] | None = None
    url: str | None = None
    pattern: str | None = None


class _Call(Struct):
    action: _Action | None = None


def web_search_item(item: OtherItem) -> WebSearchThreadItem:
    try:
        action = msgspec.json.decode(item.raw, type=_Call).action or _Action()
    except (msgspec.DecodeError, RecursionError):
        action = _Action()
    query = action.query or action.url or next(iter(action.queries or ()), "")
    if action.pattern:
        query = f"'{action.pattern}' in {query}" if query else f"'{action.pattern}'"
    return WebSearchThreadItem(id=item.id, query=query, action=_shown(action))


def _shown(action: _Action) -> WebSearchAction:
    match action.type:
        case "search":
            return SearchWebSearchAction(query=action.query, queries=action.queries)
        case "open_page":
            return OpenPageWebSearchAction(url=action.url)
        case "find_in_page":
            return FindInPageWebSearchAction(url=action.url, pattern=action.pattern)
    return OtherWebSearchAction()
