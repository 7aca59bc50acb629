"""The arguments of each tool, as a model writes them, and their reading.

Members that are not known are ignored: models invent some. The specs that tell a model of them are in `specs`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from treadle.rpc.nesting import TOO_DEEP, is_too_deep
from treadle.tools.tool_errors import ToolInputError

T = TypeVar("T")

PlanStatus: TypeAlias = Literal["pending", "in_progress", "completed"]
SandboxPermissions: TypeAlias = Literal["use_default", "require_escalated"]
_Milliseconds: TypeAlias = Annotated[int, Meta(ge=0)]
_Count: TypeAlias = Annotated[int, Meta(ge=0)]


class ExecCommandArguments(Struct, frozen=True, kw_only=True):
    cmd: str
    workdir: str | None = None
    shell: str | None = None
    login: bool = True
    tty: bool = False
    yield_time_ms: _Milliseconds | None = None
    max_output_tokens: _Count | None = None
    sandbox_permissions: SandboxPermissions = "use_default"
    justification: str | None = None
    prefix_rule: tuple[str, ...] | None = None


class WriteStdinArguments(Struct, frozen=True, kw_only=True):
    session_id: int
    chars: str = ""
    yield_time_ms: _Milliseconds | None = None
    max_output_tokens: _Count | None = None


class ApplyPatchArguments(Struct, frozen=True, kw_only=True):
    input: str


class PlanStepArguments(Struct, frozen=True, kw_only=True):
    step: str
    status: PlanStatus


class UpdatePlanArguments(Struct, frozen=True, kw_only=True):
    plan: tuple[PlanStepArguments, ...]
    explanation: str | None = None


class ViewImageArguments(Struct, frozen=True, kw_only=True):
    path: str


class GetGoalArguments(Struct, frozen=True, kw_only=True):
    pass


class CreateGoalArguments(Struct, frozen=True, kw_only=True):
    objective: Annotated[str, Meta(min_length=1)]
    token_budget: Annotated[int, Meta(gt=0)] | None = None


class UpdateGoalArguments(Struct, frozen=True, kw_only=True):
    status: Literal["complete", "blocked"]


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}  # by the types above: a model cannot add to it


def parse(raw: str, wanted: type[T]) -> T:
    """The arguments in the JSON that a model wrote; raises `ToolInputError`, which is its answer.

    No text at all is an empty object: models leave it out where nothing is required.
    """
    if wanted not in _decoders:
        _decoders[wanted] = msgspec.json.Decoder(wanted)
    data = raw.encode("utf-8", "surrogatepass") or b"{}"
    if is_too_deep(data):
        raise ToolInputError(f"failed to parse function arguments: {TOO_DEEP}")
    try:
        # A lone surrogate has no UTF-8; the decoder then says that the text is not valid.
        value: T = _decoders[wanted].decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ToolInputError(f"failed to parse function arguments: {error}") from None
    return value
