"""`Tool`: what a model can call, and `ToolCall`: what a tool is given.

Built-in tools and those of a client use the same interface. Nothing heavy is imported here or by the modules of the
tools: a server should load what a tool needs with its first call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from treadle.tools.specs import parse_arguments

if TYPE_CHECKING:
    from msgspec import Raw

    from treadle.agent.turn.turn import Turn
    from treadle.config import Config, ModelFacts

T = TypeVar("T")

Output: TypeAlias = str | list[dict[str, Any]]
"""What the model gets back: text, or content parts as the Responses API has them."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of the model, in the turn that it belongs to. `text` is as the model wrote it: JSON, or free text. `kind`
    is the type of its item."""

    turn: Turn
    id: str
    name: str
    text: str
    namespace: str | None = None
    kind: str = "function_call"

    @property
    def free_text(self) -> bool:
        return self.kind == "custom_tool_call"

    def arguments(self, wanted: type[T]) -> T:
        """Raises `ToolInputError`, which is the model's answer."""
        return parse_arguments(self.text, wanted)


class Tool(Protocol):
    """Subclass it: then `name`, `spec` and `run` are enough."""

    name: str
    """What the model calls it."""
    spec: Raw
    """Its specification for the model, encoded once: a member of `tools` in a request of the Responses API."""
    free_text: bool = False
    """Whether the model writes its input as free text (a custom tool) instead of JSON arguments."""
    feature: str | None = None
    """The switch of `[features]` that offers it; None when no switch does."""
    settings_name: str | None = None
    """What `[tools]` calls it beside its name."""
    mode: str | None = None
    """The mode of a thread that it is for; None for every mode."""
    any_mode_feature: str | None = None
    """The switch of `[features]` that offers it in every mode."""
    needs_environment: bool = False
    """Whether it runs, reads or changes something where commands run. A thread may have no such place."""
    chooses_environment: bool = False
    """Whether a call can name one of several environments: a specification with `environment_id` says so then."""
    only_reads: bool = False
    """Whether a call changes nothing, wherever it looks."""
    may_destroy: bool = False
    """Whether a call can overwrite or remove what the user has; such a tool asks for approval itself."""
    exclusive: bool = False
    """Whether it changes what other calls look at: then it waits for those before it, and those after it wait."""
    domain: str = ""
    """What its calls look at and change, when that is not the workspace: only calls with the same domain wait for each
    other."""

    def suits(self, model: ModelFacts) -> bool:
        """Whether this model is offered it. It may call it all the same: the history of a thread is of many models."""
        return True

    def is_configured(self, config: Config) -> bool:
        """Whether the settings bring all that it needs; without, there is no such tool."""
        return True

    def may_write(self, call: ToolCall) -> bool:
        """Whether the call may change files of the workspace, which are copied before."""
        return self.may_destroy and not self.only_reads

    def answers(self, call: ToolCall) -> bool:
        """Whether the call is meant for it."""
        return call.name == self.name and call.free_text == self.free_text

    async def run(self, call: ToolCall) -> Output:
        """Do it. An item that people should see is shown through `call.turn`.

        The messages of `ToolInputError` and `ExecError` go to the model. When the turn is interrupted, the call is
        cancelled.
        """
        ...
