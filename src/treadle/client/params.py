"""From the keyword arguments of `Codex` and `Thread` to protocol params. Pure; both clients use it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from treadle.arguments import limit
from treadle.client.argument_checks import checked, paths, required
from treadle.client.modes import ApprovalMode, Sandbox, approval_settings, sandbox_mode, sandbox_policy
from treadle.client.request_values import without_none
from treadle.client.turn_input import RunInput, tool_output, wire_input
from treadle.errors import ArgumentValueError
from treadle.protocol.app.turns import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewStartParams,
    TurnStartParams,
    UncommittedChangesReviewTarget,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from treadle.client.output_type import OutputType
    from treadle.client.tools import Tool
    from treadle.protocol.app.thread_methods import (
        ThreadForkParams,
        ThreadListParams,
        ThreadResumeParams,
        ThreadStartParams,
    )
    from treadle.protocol.app.turns import ReviewTarget, TurnStartParams


def start_params(
    approval_mode: ApprovalMode,
    sandbox: Sandbox | None,
    tools: Iterable[Tool],
    has_approval_handler: bool,
    **given: Any,
) -> ThreadStartParams:
    from treadle.protocol.app.thread_methods import ThreadStartParams  # loaded with the first thread

    settings = approval_settings(approval_mode, has_approval_handler=has_approval_handler)
    specs = tuple(tool.spec() for tool in tools) or None
    return ThreadStartParams(
        **settings, **checked(**given), **without_none(sandbox=sandbox_mode(sandbox), dynamic_tools=specs)
    )


def resume_params(
    thread_id: str,
    approval_mode: ApprovalMode | None,
    sandbox: Sandbox | None,
    include_turns: bool | None,
    has_approval_handler: bool,
    **given: Any,
) -> ThreadResumeParams:
    from treadle.protocol.app.thread_methods import ThreadResumeParams  # loaded with the first thread

    settings = approval_settings(approval_mode, has_approval_handler=has_approval_handler)
    return ThreadResumeParams(
        **required(thread_id=thread_id),
        **settings,
        **_excluded(include_turns),
        **checked(**given),
        **without_none(sandbox=sandbox_mode(sandbox)),
    )


def fork_params(
    thread_id: str,
    approval_mode: ApprovalMode | None,
    sandbox: Sandbox | None,
    include_turns: bool | None,
    has_approval_handler: bool,
    **given: Any,
) -> ThreadForkParams:
    from treadle.protocol.app.thread_methods import ThreadForkParams  # loaded with the first thread

    settings = approval_settings(approval_mode, has_approval_handler=has_approval_handler)
    return ThreadForkParams(
        **required(thread_id=thread_id),
        **settings,
        **_excluded(include_turns),
        **checked(**given),
        **without_none(sandbox=sandbox_mode(sandbox)),
    )


def _excluded(include_turns: bool | None) -> dict[str, Any]:
    given = checked(include_turns=include_turns)
    return {"exclude_turns": not given["include_turns"]} if given else {}


def list_params(*, cwd: object, **given: Any) -> ThreadListParams:
    from treadle.protocol.app.thread_methods import ThreadListParams  # loaded with the first thread

    folders = {} if cwd is None else {"cwd": paths("cwd", cwd)}
    return ThreadListParams(**checked(**given), **cast("Any", folders))


def turn_params(
    thread_id: str,
    input: RunInput,
    approval_mode: ApprovalMode | None,
    sandbox: Sandbox | None,
    source: str | None,
    turn_service_tier: str | None,
    has_approval_handler: bool,
    **given: Any,
) -> TurnStartParams:
    return TurnStartParams(
        thread_id=thread_id,
        input=cast("Any", tuple(wire_input(input))),  # plain values, as they are sent
        **approval_settings(approval_mode, has_approval_handler=has_approval_handler),
        **checked(**given),
        **without_none(
            sandbox_policy=sandbox_policy(sandbox),
            tool_output=tool_output(input),
            **_renamed(source=source, turn_service_tier=turn_service_tier),
        ),
    )


def review_params(
    thread_id: str, instructions: str | None, branch: str | None, commit: str | None
) -> ReviewStartParams:
    """Of what is not committed, when nothing else is named."""
    given = checked(instructions=instructions, branch=branch, commit=commit)
    if len(given) > 1:
        names = " and ".join(given)
        raise ArgumentValueError(next(reversed(given)), f"a review is of one thing: pass one of {names}, not all")
    target: ReviewTarget = UncommittedChangesReviewTarget()
    if "instructions" in given:
        target = CustomReviewTarget(instructions=given["instructions"])
    elif "branch" in given:
        target = BaseBranchReviewTarget(branch=given["branch"])
    elif "commit" in given:
        target = CommitReviewTarget(sha=given["commit"])
    return ReviewStartParams(thread_id=thread_id, target=target)


def _renamed(source: str | None, turn_service_tier: str | None) -> dict[str, str]:
    """What the protocol has other names for."""
    given = checked(source=source, turn_service_tier=turn_service_tier)
    names = {"source": "turn_trigger", "turn_service_tier": "service_tier_for_turn"}
    return {names[name]: value for name, value in given.items()}


def limit_of(timeout: float | None) -> dict[str, float]:
    """Empty if there is no limit, so that a custom client need not accept `timeout`."""
    found = limit(timeout)
    return {} if found is None else {"timeout": found}


def remaining(timeout: float | None, since: float) -> float | None:
    """What is left of a time limit that began at `since`."""
    return None if timeout is None else max(0.0, timeout - (time.monotonic() - since))


def has_approval_handler(client: Any) -> bool:
    """Whether an `approval_handler` decides."""
    handlers = getattr(client, "handlers", None)
    return handlers is not None and handlers.approval is not None


def tools_of(given: Sequence[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    if isinstance(given, tuple | list) and not given:
        return {}
    from treadle.client.tools import tools_by_name  # only for threads with tools

    return tools_by_name(given)


def output_of(wanted: Any) -> OutputType[Any] | None:
    if wanted is None:
        return None
    from treadle.client.output_type import OutputType  # only for turns with an output type

    return OutputType(wanted)
