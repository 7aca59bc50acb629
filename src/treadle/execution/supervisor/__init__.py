"""Starting, signalling and reaping commands in a helper process; see `supervisor_program` for why.

The names are loaded when first used: whoever only looks for descendants (`supervisor_program`) does without the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.execution.supervisor.supervisor_client import Child, Command, SpawnRefused, Supervisor, SupervisorLost

__all__ = ["Child", "Command", "SpawnRefused", "Supervisor", "SupervisorLost"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from treadle.execution.supervisor import supervisor_client

        return getattr(supervisor_client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
