"""One call of `web_search` or `web_fetch`: its item, whether it may be done, and what the model gets of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from treadle.agent.thread.authority import CHANGED
from treadle.agent.tools.approval import Approval, ApprovalQuestion, ReviewedAction, Risk, ToolUse, is_yes
from treadle.agent.tools.web_tools import MAX_TEXT, reach
from treadle.protocol.app.approvals import (
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    NetworkAccessGuardianApprovalReviewAction,
    NetworkApprovalContext,
)
from treadle.protocol.app.items import OpenPageWebSearchAction, SearchWebSearchAction, WebSearchThreadItem
from treadle.tools.web.pages import KnownRobots, WebClient, WebFailure, host_of, read_address, url_of
from treadle.tools.web.readable import untrusted
from treadle.tools.web.search import COUNTS, MAX_QUERY, MAX_RESULTS_BYTES, read_results, results_text, search_url

if TYPE_CHECKING:
    from treadle.agent.tools.tool import ToolCall
    from treadle.agent.tools.web_tools import WebFetchArguments
    from treadle.config.file_settings import WebSearchTable
    from treadle.http.target import HttpTarget

# Of all threads: what a site asks of programs does not depend on who reads it.
ROBOTS: Final = KnownRobots()
NOT_JSON: Final = "did not answer in JSON: its settings.yml has to name `json` among `search.formats`"


async def search(call: ToolCall, query: str, table: WebSearchTable) -> str:
    query = query[:MAX_QUERY]
    item = WebSearchThreadItem(id=call.id, query=query, action=SearchWebSearchAction(query=query, queries=(query,)))
    call.turn.items.start(item)
    try:
        return await _search(query, table)
    finally:
        call.turn.items.complete(item)


async def _search(query: str, table: WebSearchTable) -> str:
    assert table.endpoint is not None, "without an endpoint there is no such tool"
    where = "the search server ([tools.web_search] endpoint)"
    try:
        target = await asyncio.to_thread(read_address, search_url(table.endpoint, query))
        # The user has named this server: it may be anywhere.
        async with WebClient(private_hosts={target.host}) as client:
            response = await client.data(target, MAX_RESULTS_BYTES)
    except WebFailure as error:
        return f"the search failed: {where}: {error.message}"
    if response.status != 200:
        return f"the search failed: {where} {NOT_JSON if response.status == 403 else f'answered {response.status}'}"
    count = COUNTS[table.context_size or "medium"]
    results = None if response.cut else read_results(response.body, count=count, domains=table.allowed_domains)
    if results is None:
        return f"the search failed: {where} {NOT_JSON}"
    if not results:
        return "nothing was found"
    return untrusted(results_text(results), head=f"Results for: {query}")


class PageCall:
    def __init__(self, call: ToolCall, given: WebFetchArguments, table: WebSearchTable) -> None:
        self._turn = call.turn
        self._thread = call.turn.thread
        self._given = given
        self._table = table
        self._private = frozenset(host.lower() for host in table.private_hosts)
        self._approval = Approval(call.turn, f"the page {given.url[:200]}")
        self._accepted: str | None = None  # a host
        self._item = WebSearchThreadItem(id=call.id, query=given.url, action=OpenPageWebSearchAction(url=given.url))

    async def run(self) -> str:
        """The answer for the model."""
        try:
            target = await asyncio.to_thread(read_address, self._given.url)
        except WebFailure as error:
            return error.message
        opened = self._turn.items.start(self._item)
        try:
            refused = await self._seek(target, opened.item.started_at_ms or 0)
            if refused is not None:
                return refused
            async with WebClient(private_hosts=self._private, robots=ROBOTS) as client:
                page = await client.page(target, self._may_visit)
        except WebFailure as error:
            return f"the page was not read: {error.message}"
        finally:
            self._turn.items.complete(self._item)
        if page.moved_to is not None:
            return untrusted(page.moved_to, head="The page has moved to another host. Fetch this URL to go there:")
        start = max(self._given.start, 0)
        piece = page.text[start : start + MAX_TEXT]
        head = page.url + (f"\n{page.title}" if page.title else "")
        end = start + len(piece)
        if end < len(page.text):
            piece += f"\n\n[{len(page.text) - end} more characters: call it again with start={end}]"
        elif page.cut:
            piece += "\n\n[the page is longer than what is read of one]"
        return untrusted(piece or "[there is no text here]", head=head)

    def _may_visit(self, target: HttpTarget) -> bool:
        """Whether a request may go there without another question."""
        host = host_of(target)
        found = reach(host, self._approval.settings, self._table)
        if self._approval.outdated or found == "denied":
            return False
        if found == "named" or host == self._accepted or host in self._thread.authority.hosts:
            return True
        return found == "open" and self._approval.settings.approval_policy != "untrusted"

    async def _seek(self, target: HttpTarget, started_at_ms: int) -> str | None:
        """The answer for the model when the page may not be read."""
        if self._may_visit(target):
            return None
        host = host_of(target)
        found = reach(host, self._approval.settings, self._table)
        if found == "denied":
            return (
                f"not asked: pages of {host} are not allowed here, by `allowed_domains` of [tools.web_search] or by "
                "the permission profile"
            )
        outcome = await self._approval.seek(
            Risk(untrusted=True, beyond=found == "unnamed"), self._question(target, started_at_ms)
        )
        if not is_yes(outcome):
            return self._approval.denied(outcome)
        if self._approval.outdated:
            return CHANGED
        self._accepted = host
        if outcome == "acceptForSession":
            self._thread.authority.hosts.add(host)
        return None

    def _question(self, target: HttpTarget, started_at_ms: int) -> ApprovalQuestion:
        """As clients know it from commands that want to reach a host."""
        host, url = host_of(target), url_of(target)

        def params() -> CommandExecutionRequestApprovalParams:
            return CommandExecutionRequestApprovalParams(
                thread_id=self._thread.id,
                turn_id=self._turn.id,
                item_id=self._item.id,
                started_at_ms=started_at_ms,
                reason=UNSET,
                command=f"web_fetch {url}",
                cwd=self._approval.settings.cwd,
                network_approval_context=NetworkApprovalContext(host=host, protocol=target.scheme),
                available_decisions=("accept", "acceptForSession", "decline", "cancel"),
            )

        def action() -> ReviewedAction:
            port = target.origin[2]
            shown = NetworkAccessGuardianApprovalReviewAction(host=host, port=port, protocol=target.scheme, target=url)
            exact = {"tool": "web_fetch", "url": url, "does": "sends a GET request for this URL from this machine"}
            return ReviewedAction(item_id=self._item.id, shown=shown, exact=exact)

        method = "item/commandExecution/requestApproval"
        use = ToolUse(self._item.id, "web_fetch", {"url": self._given.url})
        return ApprovalQuestion(method, params, CommandExecutionRequestApprovalResponse, use, action)
