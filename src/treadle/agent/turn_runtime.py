"""`Runtime`: the door for what runs a turn of a thread. Ours asks a model and runs the tools that it calls; a whole
engine may stand behind the same door.

A thread's model provider says which one it is: a provider that is in `RUNTIMES` is an engine of its own, every other
one is asked by our loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from treadle.agent.turn import Turn


class Runtime(Protocol):
    """A runtime has no state of its own: what it must remember of a thread is in the thread's history."""

    async def run(self, turn: Turn) -> None:
        """Answer the input that waits (`turn.input`), item by item, and return when the turn is over.

        What it shows goes through `turn.items` and `turn.report`; input that comes meanwhile is its to take, until
        `turn.try_finish()` says that nothing more will. It is cancelled when the turn is interrupted, and raises
        `ModelError` (or any `TreadleError`) when the turn fails: its message is what the user reads.
        """


# provider -> module:attribute, loaded with the first turn
RUNTIMES: Final[dict[str, str]] = {}
_LOOP: Final = "treadle.agent.conversation:LOOP"


def runtime_of(provider: str) -> Runtime:
    module, _, name = RUNTIMES.get(provider, _LOOP).partition(":")
    return cast("Runtime", getattr(import_module(module), name))
