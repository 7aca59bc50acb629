"""`Question`: what a server asks before something is done, the choices that a person has, and the answer of each. Pure.

A question shows all that is to be judged, however long. Everything fails closed: no answer, an unknown key and a
request that is not known here all mean no.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct
from rich.console import RenderableType
from rich.text import Text

from treadle.cli.turn.rich_blocks import Hanging, beneath, drawn_change, signed
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.pages.safe_text import printable, printable_line
from treadle.pages.view_blocks import WARNING, ChangeBlock
from treadle.protocol.app.approvals import (
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    Decision,
    FileChangeRequestApprovalParams,
    FileChangeRequestApprovalResponse,
    McpServerElicitationRequestParams,
    McpServerElicitationRequestResponse,
    PermissionsRequestApprovalParams,
    PermissionsRequestApprovalResponse,
    RequestPermissionProfile,
)
from treadle.protocol.app.base import convert
from treadle.protocol.app.methods import SERVER_REQUESTS
from treadle.tools.command.command_shell import asked

_LABELS: Final[Mapping[Decision, tuple[str, str]]] = {
    "accept": ("y", "yes"),
    "acceptForSession": ("a", "yes, and for the rest of this session"),
    "decline": ("n", "no, and tell the agent what to do instead"),
    "cancel": ("q", "no, and stop the turn"),
}

# A server may say much of its tools; the question is about the arguments.
_MAX_DESCRIPTION: Final = 500


class ApprovalChoice(Struct, frozen=True, kw_only=True):
    """One of the answers.

    Args:
        key: What is typed for it.
        label: What it means.
        answer: What is sent to the server.
        allows: Whether it is a yes.
        tells: Whether the person may type what to do instead, which is then sent to the agent.
        stops: Whether it ends the turn.
    """

    key: str
    label: str
    answer: Struct
    allows: bool = False
    tells: bool = False
    stops: bool = False

    @property
    def short_label(self) -> str:
        """`yes` or `no`."""
        return self.label.partition(",")[0]


class Question(Struct, frozen=True, kw_only=True):
    """A question, as a person sees it.

    Args:
        title: The question, on one line.
        item_id: The item that it is about; empty when it is about none.
        reason: Why it is asked, if that is known.
        subject: What would be done, to be looked at.
        choices: The answers to choose from.
        no: The answer when nobody answers.
    """

    title: str
    item_id: str
    reason: str | None
    subject: tuple[RenderableType, ...]
    choices: tuple[ApprovalChoice, ...]
    no: Struct

    def choose(self, typed: str) -> ApprovalChoice | None:
        """The choice of a key, or of a word such as `yes`; None if it is none of them."""
        word = typed.strip().lower()
        return next((choice for choice in self.choices if word and word in (choice.key, choice.short_label)), None)

    def blocks(self) -> list[RenderableType]:
        """The whole question, as it stands above the place where the answer is typed."""
        reason = [Hanging(Text("  why: ", "dim"), Text(printable(self.reason)))] if self.reason else []
        choices = [Hanging(Text(f"  {choice.key}  ", "bold cyan"), Text(choice.label)) for choice in self.choices]
        return [signed(WARNING, Text(self.title, "bold")), *self.subject, *reason, *choices]


def params_of_request(method: str, params: Any) -> Any:
    """The params of a server's request. Raises `RpcError` for one that is not known or not understood."""
    record = SERVER_REQUESTS.get(method)
    if record is None:
        raise no_answer(method)
    try:
        return convert(params, record.params)
    except msgspec.ValidationError:
        raise no_answer(method) from None


def approval_question(method: str, params: Any, changes: Sequence[ChangeBlock] | None = None) -> Question | None:
    """The question of a server's request; None for a request that is no question of this kind. `changes` is the patch
    that a request names by its id."""
    match method, params:
        case "item/commandExecution/requestApproval", CommandExecutionRequestApprovalParams():
            return _command(params)
        case "item/fileChange/requestApproval", FileChangeRequestApprovalParams():
            return _patch(params, changes)
        case "item/permissions/requestApproval", PermissionsRequestApprovalParams():
            return _permissions(params)
        case "mcpServer/elicitation/request", McpServerElicitationRequestParams():
            return _elicitation(params)
    return None


def no_answer(method: str) -> RpcError:
    """The answer to a request that nobody here can answer."""
    return RpcError(INVALID_REQUEST, f"nobody is there to be asked ({method})")


# --- each kind ---


def _command(params: CommandExecutionRequestApprovalParams) -> Question:
    lines = printable(asked(params.command or "")).rstrip().split("\n")
    subject = [*beneath(lines, "bold")]
    if params.cwd:
        subject.append(Hanging(Text("  in ", "dim"), Text(printable_line(params.cwd), "dim")))
    network = params.network_approval_context
    if network:
        subject.append(Hanging(Text("  network: ", "dim"), Text(printable_line(f"{network.protocol} {network.host}"))))
    offered = params.available_decisions
    allowed = None if not offered else {decision for decision in offered if isinstance(decision, str)}
    title = "May the agent type this into a running command?" if params.kind == "writeStdin" else "Run this command?"
    if network and (params.command or "").startswith("web_fetch "):
        title = "Read this page of the web?"
    return Question(
        title=title,
        item_id=params.item_id,
        reason=None if params.reason is UNSET else params.reason,
        subject=tuple(subject),
        choices=tuple(
            _choice(decision, CommandExecutionRequestApprovalResponse(decision=decision))
            for decision in _LABELS
            if allowed is None or decision in allowed
        ),
        no=CommandExecutionRequestApprovalResponse(decision="decline"),
    )


def _patch(params: FileChangeRequestApprovalParams, changes: Sequence[ChangeBlock] | None) -> Question:
    root = f" and others below {printable_line(params.grant_root)}" if params.grant_root else ""
    return Question(
        title=f"Change these files{root}?",
        item_id=params.item_id,
        reason=params.reason,
        subject=tuple(row for change in changes or () for row in drawn_change(change, whole=True)),
        choices=tuple(
            _choice(decision, FileChangeRequestApprovalResponse(decision=decision))
            for decision in _LABELS
            if changes is not None or decision in ("decline", "cancel")  # what cannot be seen cannot be allowed
        ),
        no=FileChangeRequestApprovalResponse(decision="decline"),
    )


def _permissions(params: PermissionsRequestApprovalParams) -> Question:
    nothing = PermissionsRequestApprovalResponse(permissions=RequestPermissionProfile())
    wanted = params.permissions
    lines: list[str] = []
    if (files := wanted.file_system) is not None:
        lines += [f"read {path}" for path in files.read or ()]
        lines += [f"write {path}" for path in files.write or ()]
        for entry in files.entries or ():
            path: Any = entry.path  # a path, a pattern, or a place by its name
            place = getattr(getattr(path, "value", None), "kind", path)
            lines.append(f"{entry.access} {getattr(path, 'path', None) or getattr(path, 'pattern', None) or place}")
    if wanted.network is not None and wanted.network.enabled:
        lines.append("use the network")
    lines = [printable_line(line) for line in lines]
    return Question(
        title="Allow this for the rest of the turn?",
        item_id=params.item_id,
        reason=params.reason,
        subject=tuple(beneath(lines or ["nothing in particular"], "bold")),
        choices=(
            ApprovalChoice(
                key="y", label="yes", answer=PermissionsRequestApprovalResponse(permissions=wanted), allows=True
            ),
            ApprovalChoice(
                key="a",
                label=_LABELS["acceptForSession"][1],
                answer=PermissionsRequestApprovalResponse(permissions=wanted, scope="session"),
                allows=True,
            ),
            ApprovalChoice(key="n", label=_LABELS["decline"][1], answer=nothing, tells=True),
        ),
        no=nothing,
    )


def _elicitation(params: McpServerElicitationRequestParams) -> Question:
    """A form cannot be filled in here: then there is only no."""
    if isinstance(params.meta, Mapping) and params.meta.get("codex_approval_kind") == "mcp_tool_call":
        return _mcp_tool(params, params.meta)
    declined = McpServerElicitationRequestResponse(action="decline")
    schema = params.requested_schema
    has_fields = isinstance(schema, Mapping) and bool(schema.get("properties"))
    subject = [*beneath(printable(params.message).split("\n"), "bold")]
    if params.url:
        subject.append(Hanging(Text("  open ", "dim"), Text(printable_line(params.url))))
    if has_fields:
        subject.append(Hanging(Text("  "), Text("it wants a form to be filled in, which cannot be done here")))
    accepted = McpServerElicitationRequestResponse(action="accept", content={})
    yes = () if has_fields else (ApprovalChoice(key="y", label="yes", answer=accepted, allows=True),)
    cancelled = McpServerElicitationRequestResponse(action="cancel")
    return Question(
        title=f"{printable_line(params.server_name)} asks:",
        item_id="",
        reason=None,
        subject=tuple(subject),
        choices=(
            *yes,
            ApprovalChoice(key="n", label="no", answer=declined),
            ApprovalChoice(key="q", label="no, and give it no answer", answer=cancelled, stops=True),
        ),
        no=declined,
    )


def _mcp_tool(params: McpServerElicitationRequestParams, meta: Mapping[str, Any]) -> Question:
    """Whether a tool of a server may run, with all of its arguments. What the server says of it is said by the server:
    it is shown as such, on one line."""
    declined = McpServerElicitationRequestResponse(action="decline")
    given = meta.get("tool_params")
    arguments = given.items() if isinstance(given, Mapping) else ()
    lines = [f"{name}: {msgspec.json.encode(value).decode()}" for name, value in arguments]
    subject = [*beneath([printable_line(line) for line in lines], "bold")]
    if isinstance(description := meta.get("tool_description"), str) and description.strip():
        said = printable_line(" ".join(description.split()))[:_MAX_DESCRIPTION]
        subject.append(Hanging(Text("  the server says of it: ", "dim"), Text(said, "dim")))

    def yes(key: str, label: str, **more: Any) -> ApprovalChoice:
        answer = McpServerElicitationRequestResponse(action="accept", content={}, **more)
        return ApprovalChoice(key=key, label=label, answer=answer, allows=True)

    choices = [yes("y", "yes")]
    offered = meta.get("persist")
    persist = offered if isinstance(offered, list) else []
    if "session" in persist:
        choices.append(yes("a", _LABELS["acceptForSession"][1], meta={"persist": "session"}))
    if "always" in persist:
        choices.append(yes("w", "yes, and always: write it into config.toml", meta={"persist": "always"}))
    return Question(
        title=printable_line(params.message),
        item_id="",
        reason=None,
        subject=tuple(subject),
        choices=(*choices, ApprovalChoice(key="n", label=_LABELS["decline"][1], answer=declined, tells=True)),
        no=declined,
    )


def _choice(decision: Decision, answer: Struct) -> ApprovalChoice:
    key, label = _LABELS[decision]
    return ApprovalChoice(
        key=key,
        label=label,
        answer=answer,
        allows=decision in ("accept", "acceptForSession"),
        tells=decision == "decline",
        stops=decision == "cancel",
    )
