"""A review: a turn in which another model, or the same one with other instructions, judges a change.

It owns what the reviewer is asked, what it may do, and what of it stays: clients see that the review begins, what the
reviewer does, and its report; the model of the thread is told of the report, as of something that the user had done.
"""

from __future__ import annotations

import shlex
from typing import Any, Final

from msgspec import Struct, structs

from treadle.agent.aside import Aside
from treadle.agent.context import aside_context
from treadle.agent.conversation import converse
from treadle.agent.ids import new_id
from treadle.agent.pending_input import MAX_CHARS, Input
from treadle.agent.review_report import report_text
from treadle.agent.state import Settings
from treadle.agent.summary import user_message
from treadle.agent.thread import Thread
from treadle.agent.turn import Turn
from treadle.config.review_prompt import REVIEW_PROMPT
from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, RpcError
from treadle.protocol.app.inputs import TextUserInput
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
            return _against(_given("branch", target.branch))
        case CommitReviewTarget():
            return _commit(_given("sha", target.sha), (target.title or "").strip())
        case CustomReviewTarget():
            asked = _given("instructions", target.instructions)
            return Review(asked, asked)


def _against(branch: str) -> Review:
    quoted = shlex.quote(branch)
    question = (
        f"Review what would be merged into the branch '{branch}'. Find where the work began with `git merge-base HEAD "
        f"{quoted}`, or with the upstream of that branch if it is further on, and look at `git diff` from that commit. "
        f"{_FINDINGS}"
    )
    return Review(f"changes against '{branch}'", question)


def _commit(sha: str, title: str) -> Review:
    named = f"{sha} ({title})" if title else sha
    shown = sha[:SHORT_SHA]
    question = f"Review what the commit {named} changes: `git show {shlex.quote(sha)}`. {_FINDINGS}"
    return Review(f"commit {shown}: {title}" if title else f"commit {shown}", question)


def _given(name: str, text: str) -> str:
    text = text.strip()
    if not text:
        raise RpcError(INVALID_REQUEST, f"{name} must not be empty")
    if len(text) > MAX_CHARS:
        raise RpcError(INVALID_PARAMS, f"{name} exceeds the maximum length of {MAX_CHARS} characters.")
    return text


# --- the reviewer ----------------------------------------------------------------------------------------------------


def reviewer() -> Aside:
    return Aside(_settings, TOOLS)


def _settings(thread: Thread) -> Settings:
    """Nobody is asked for more than the sandbox allows. Who wants to be asked before every command still is. A reviewer
    does not plan, whatever the thread does."""
    settings = thread.settings
    policy: Any = settings.approval_policy if settings.approval_policy == "untrusted" else "never"
    model = thread.services.config_for(settings).review_model or settings.model
    return structs.replace(settings, approval_policy=policy, model=model, mode="default")


class ReviewWork:
    """The work of the turn."""

    def __init__(self, review: Review) -> None:
        self._review = review

    async def __call__(self, turn: Turn) -> None:
        assert turn.aside is not None
        turn.items.show(EnteredReviewModeThreadItem(id=new_id(), review=self._review.title))
        try:
            await turn.thread.load_history()
            turn.input.add(Input((TextUserInput(text=self._review.question),)))
            said = await converse(turn, await aside_context(turn, turn.aside, REVIEW_PROMPT))
        except BaseException:
            turn.input.clear()
            self._leave(turn, NO_REPORT, UNFINISHED)
            raise
        report = report_text(said) or NO_REPORT
        self._leave(turn, report, report)

    def _leave(self, turn: Turn, report: str, told: str) -> None:
        """However it ended, clients leave review mode, and the thread goes on knowing of it."""
        turn.items.show(ExitedReviewModeThreadItem(id=new_id(), review=report))
        message = AgentMessageThreadItem(id=f"msg_{new_id()}", text=told)
        thread = turn.thread
        if thread.history is None:  # it could not be read
            turn.items.show(message)
            return
        # In the role of who wrote it: it may repeat what the code under review says, and that must not become an order.
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": told}]}
        turn.items.show(message, *thread.remember([user_message(self._note()), said], turn.number))

    def _note(self) -> str:
        return (
            "<user_action>\n<action>review</action>\n"
            f"The user had a reviewer look at this: {self._review.title}. Its report follows; the user may want some "
            "of it to be put right.\n</user_action>"
        )


def shown_turn(turn: Turn, review: Review) -> WireTurn:
    """As it is given to whoever asked for it: with the title, as if the user had typed it."""
    asked = UserMessageThreadItem(id=turn.id, content=(TextUserInput(text=review.title),))
    return structs.replace(turn.state.fresh(), items=(asked,), root_turn_id=None)
