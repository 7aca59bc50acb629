"""A review: a turn in which another model, or the same one with other instructions, judges a change.

It owns what the reviewer is asked, what it may do, and what remains: clients see that the review begins, what the
reviewer does, and its report; the model of the thread gets the report, as something that the user had done. A reviewer
is asked for JSON; when it answers otherwise, its text is the report.
"""

from __future__ import annotations

import shlex
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from treadle.agent.event import new_id
from treadle.agent.thread.model_history import user_message
from treadle.agent.thread.thread import Thread
from treadle.agent.thread.thread_state import Settings
from treadle.agent.turn.model_context import side_context
from treadle.agent.turn.pending_input import MAX_INPUT_CHARS, Input
from treadle.agent.turn.turn import SideConversation, Turn
from treadle.agent.turn.turn_loop import converse
from treadle.config.prompts import REVIEW_PROMPT
from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, RpcError
from treadle.execution.sandbox.profile_sandbox import without_writing
from treadle.protocol.app.item_parts import TextUserInput
from treadle.protocol.app.items import (
    AgentMessageThreadItem,
    EnteredReviewModeThreadItem,
    ExitedReviewModeThreadItem,
    UserMessageThreadItem,
)
from treadle.protocol.app.turns import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewTarget,
    UncommittedChangesReviewTarget,
)
from treadle.protocol.app.turns import Turn as WireTurn

# --- what is reviewed -------------------------------------------------------------------------------------------------


# It looks and runs what helps to judge; it has nothing to change, to plan or to ask.
TOOLS: Final = frozenset({"exec_command", "write_stdin", "view_image"})
SHORT_SHA: Final = 7
NO_REPORT: Final = "The reviewer gave no report."
UNFINISHED: Final = "The review did not come to its end. Start it again if it is still wanted."
_FINDINGS: Final = "Report what you find, the most serious first."


class Review(Struct, frozen=True):
    """`title` is what people see of it, `question` what the reviewer is asked."""

    title: str
    question: str


def review_of(target: ReviewTarget) -> Review:
    """Raises `RpcError` for a target that says nothing."""
    match target:
        case UncommittedChangesReviewTarget():
            what = "the changes of the working tree that are not committed: staged, unstaged and untracked files"
            return Review("current changes", f"Review {what}. {_FINDINGS}")
        case BaseBranchReviewTarget():
            branch = _given("branch", target.branch)
            question = (
                f"Review what would be merged into the branch '{branch}'. Find where the work began with `git "
                f"merge-base HEAD {shlex.quote(branch)}`, or with the upstream of that branch if it is further on, and "
                f"look at `git diff` from that commit. {_FINDINGS}"
            )
            return Review(f"changes against '{branch}'", question)
        case CommitReviewTarget():
            sha, title = _given("sha", target.sha), (target.title or "").strip()
            named = f"{sha} ({title})" if title else sha
            shown = f"commit {sha[:SHORT_SHA]}"
            question = f"Review what the commit {named} changes: `git show {shlex.quote(sha)}`. {_FINDINGS}"
            return Review(f"{shown}: {title}" if title else shown, question)
        case CustomReviewTarget():
            asked = _given("instructions", target.instructions)
            return Review(asked, asked)


def _given(name: str, text: str) -> str:
    text = text.strip()
    if not text:
        raise RpcError(INVALID_REQUEST, f"{name} must not be empty")
    if len(text) > MAX_INPUT_CHARS:
        raise RpcError(INVALID_PARAMS, f"{name} exceeds the maximum length of {MAX_INPUT_CHARS} characters.")
    return text


# --- the reviewer -----------------------------------------------------------------------------------------------------


def reviewer() -> SideConversation:
    return SideConversation(_settings, TOOLS)


def _settings(thread: Thread) -> Settings:
    """Nothing is written, and nobody is asked for more than the sandbox allows. Who wants to be asked before every
    command still is. A reviewer does not plan, whatever the thread does."""
    settings = thread.settings
    policy: Any = settings.approval_policy if settings.approval_policy == "untrusted" else "never"
    model = thread.services.config_for(settings).review_model or settings.model
    sandbox = without_writing(settings.sandbox)
    return structs.replace(settings, approval_policy=policy, model=model, sandbox=sandbox, mode="default")


class ReviewWork:
    """The work of the turn."""

    def __init__(self, review: Review) -> None:
        self._review = review

    async def __call__(self, turn: Turn) -> None:
        assert turn.side is not None
        turn.items.show(EnteredReviewModeThreadItem(id=new_id(), review=self._review.title))
        try:
            await turn.thread.load_history()
            turn.input.add(Input((TextUserInput(text=self._review.question),)))
            said = await converse(turn, await side_context(turn, turn.side, REVIEW_PROMPT))
        except BaseException:
            turn.input.clear()
            self._leave(turn, NO_REPORT, UNFINISHED)
            raise
        report = report_text(said) or NO_REPORT
        self._leave(turn, report, report)

    def _leave(self, turn: Turn, report: str, text: str) -> None:
        """However it ended, clients leave review mode, and the thread goes on knowing of it."""
        turn.items.show(ExitedReviewModeThreadItem(id=new_id(), review=report))
        message = AgentMessageThreadItem(id=f"msg_{new_id()}", text=text)
        thread = turn.thread
        if thread.history is None:  # it could not be read
            turn.items.show(message)
            return
        note = (
            "<user_action>\n<action>review</action>\n"
            f"The user had a reviewer look at this: {self._review.title}. Its report follows; the user may want some "
            "of it to be put right.\n</user_action>"
        )
        # In the role of who wrote it: it may repeat what the code under review says, and that must not become an order.
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        turn.items.show(message, *thread.add_history([user_message(note), said], turn.number))


def shown_turn(turn: Turn, review: Review) -> WireTurn:
    """The turn as the client that asked for it gets it: with the title, as if the user had typed it."""
    asked = UserMessageThreadItem(id=turn.id, content=(TextUserInput(text=review.title),))
    return structs.replace(turn.state.fresh(), items=(asked,), root_turn_id=None)


# --- the report -------------------------------------------------------------------------------------------------------


class _LineRange(Struct):
    start: int
    end: int


class _Location(Struct):
    absolute_file_path: str
    line_range: _LineRange


class _Finding(Struct):
    title: str
    body: str
    code_location: _Location


class _Report(Struct):
    findings: list[_Finding]
    overall_explanation: str


_reader = msgspec.json.Decoder(_Report)


def report_text(said: str) -> str:
    """Empty when nothing was said."""
    try:
        # Models put fences and words around what should stand alone.
        report = _reader.decode(said[said.find("{") : said.rfind("}") + 1])
    except msgspec.DecodeError:
        return said.strip()
    parts = [report.overall_explanation.strip()]
    if report.findings:
        parts.append("Full review comments:" if len(report.findings) > 1 else "Review comment:")
    for finding in report.findings:
        lines = finding.code_location.line_range
        place = f"{finding.code_location.absolute_file_path}:{lines.start}-{lines.end}"
        title = " ".join(finding.title.split())
        parts.append("\n".join([f"- {title} — {place}", *(f"  {line}" for line in finding.body.strip().splitlines())]))
    return "\n\n".join(part for part in parts if part)
