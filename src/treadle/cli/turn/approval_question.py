"""`Question`: what a server asks before something is done, the choices that a person has, and the answer of each. Pure.

It shows all that is to be judged, however long. It fails closed: no answer, an unknown key and a request that is not
known here all mean no.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, Struct
from rich.console import RenderableType
from rich.text import Text

from treadle.cli.run.run_text import WARNING
from treadle.cli.turn.turn_blocks import Hanging, beneath, change_blocks, signed
from treadle.cli.visible import visible, visible_line
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.approvals import (
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    Decision,
    FileChangeRequestApprovalParams,
    FileChangeRequestApprovalResponse,
    PermissionsRequestApprovalParams,
    PermissionsRequestApprovalResponse,
)
from treadle.protocol.app.items import FileChangeThreadItem
from treadle.protocol.app.permissions import RequestPermissionProfile
from treadle.protocol.app.questions import McpServerElicitationRequestParams, McpServerElicitationRequestResponse
from treadle.tools.command.command_shell import asked

_LABELS: Final[Mapping[Decision, tuple[str, str]]] = {
    "accept": ("y", "yes"),
    "acceptForSession": ("a", "yes, and for the rest of this session"),
    "decline": ("n", "no, and tell the agent what to do instead"),
    "cancel": ("q", "no, and stop the turn"),
}


class Choice(Struct, frozen=True, kw_only=True):
    """One of the answers.

    Args:
        key: What is typed for it.
        label: What it means.
        answer: What the server is told.
        allows: Whether it is a yes.
        tells: Whether the person may say what to do instead, which the agent is then told.
        stops: Whether it ends the turn.
    """

    key: str
    label: str
    answer: Struct
    allows: bool = False
    tells: bool = False
    stops: bool = False


class Question(Struct, frozen=True, kw_only=True):
    """What is asked.

    Args:
        title: The question, on one line.
        item_id: What it is about; empty when it is about no item.
        reason: Why it is asked, if somebody said.
        subject: What would be done, to be looked at.
        choices: The answers that there are.
        no: The answer when nobody answers.
    """

    title: str
    item_id: str
    reason: str | None
    subject: tuple[RenderableType, ...]
    choices: tuple[Choice, ...]
    no: Struct | RpcError

    def choose(self, typed: str) -> Choice | None:
        """The choice of a key, or of a word such as `yes`; None if it is none of them."""
        word = typed.strip().lower()
        return next((choice for choice in self.choices if word and word in (choice.key, _first(choice.label))), None)

    def blocks(self) -> list[RenderableType]:
        """All of it, as it stands above the place where the answer is typed."""
        reason = [Hanging(Text("  why: ", "dim"), Text(visible(self.reason)))] if self.reason else []
        choices = [Hanging(Text(f"  {choice.key}  ", "bold cyan"), Text(choice.label)) for choice in self.choices]
        return [signed(WARNING, Text(self.title, "bold yellow")), *self.subject, *reason, *choices]


def _first(label: str) -> str:
    return label.partition(",")[0]


def approval_question(method: str, params: Any, changes: FileChangeThreadItem | None = None) -> Question | None:
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
    lines = visible(asked(params.command or "")).rstrip().split("\n")
    subject = [*beneath(lines, "bold")]
    if params.cwd:
        subject.append(Hanging(Text("  in ", "dim"), Text(visible_line(params.cwd), "dim")))
    network = params.network_approval_context
    if network:
        subject.append(Hanging(Text("  network: ", "dim"), Text(visible_line(f"{network.protocol} {network.host}"))))
    offered = params.available_decisions
    allowed = None if not offered else {decision for decision in offered if isinstance(decision, str)}
    return Question(
        title="May the agent type this into a running command?" if params.kind == "writeStdin" else "Run this command?",
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


def _patch(params: FileChangeRequestApprovalParams, changes: FileChangeThreadItem | None) -> Question:
    shown = change_blocks(changes.changes, "inProgress", whole=True) if changes is not None else []
    root = f" and others below {visible_line(params.grant_root)}" if params.grant_root else ""
    return Question(
        title=f"Change these files{root}?",
        item_id=params.item_id,
        reason=params.reason,
        subject=tuple(shown),
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
    return Question(
        title="Allow this for the rest of the turn?",
        item_id=params.item_id,
        reason=params.reason,
        subject=tuple(beneath(_wanted(wanted), "bold")),
        choices=(
            Choice(key="y", label="yes", answer=PermissionsRequestApprovalResponse(permissions=wanted), allows=True),
            Choice(
                key="a",
                label=_LABELS["acceptForSession"][1],
                answer=PermissionsRequestApprovalResponse(permissions=wanted, scope="session"),
                allows=True,
            ),
            Choice(key="n", label=_LABELS["decline"][1], answer=nothing, tells=True),
        ),
        no=nothing,
    )


def _wanted(wanted: RequestPermissionProfile) -> list[str]:
    lines: list[str] = []
    files = wanted.file_system
    if files is not None:
        lines += [f"read {path}" for path in files.read or ()]
        lines += [f"write {path}" for path in files.write or ()]
        lines += [f"{entry.access} {_place(entry.path)}" for entry in files.entries or ()]
    if wanted.network is not None and wanted.network.enabled:
        lines.append("use the network")
    return [visible_line(line) for line in lines] or ["nothing in particular"]


def _place(path: Any) -> str:
    value = getattr(path, "value", None)
    return str(getattr(path, "path", None) or getattr(path, "pattern", None) or getattr(value, "kind", path))


def _elicitation(params: McpServerElicitationRequestParams) -> Question:
    """A form cannot be filled in here: then there is only no."""
    declined = McpServerElicitationRequestResponse(action="decline")
    schema = params.requested_schema
    has_fields = isinstance(schema, Mapping) and bool(schema.get("properties"))
    subject = [*beneath(visible(params.message).split("\n"), "bold")]
    if params.url:
        subject.append(Hanging(Text("  open ", "dim"), Text(visible_line(params.url))))
    if has_fields:
        subject.append(
            Hanging(Text("  "), Text("it wants a form to be filled in, which cannot be done here", "yellow"))
        )
    accepted = McpServerElicitationRequestResponse(action="accept", content={})
    yes = () if has_fields else (Choice(key="y", label="yes", answer=accepted, allows=True),)
    cancelled = McpServerElicitationRequestResponse(action="cancel")
    return Question(
        title=f"{visible_line(params.server_name)} asks:",
        item_id="",
        reason=None,
        subject=tuple(subject),
        choices=(
            *yes,
            Choice(key="n", label="no", answer=declined),
            Choice(key="q", label=_LABELS["cancel"][1], answer=cancelled, stops=True),
        ),
        no=declined,
    )


def _choice(decision: Decision, answer: Struct) -> Choice:
    key, label = _LABELS[decision]
    return Choice(
        key=key,
        label=label,
        answer=answer,
        allows=decision in ("accept", "acceptForSession"),
        tells=decision == "decline",
        stops=decision == "cancel",
    )
