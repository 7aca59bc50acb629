"""Starting, signalling and reaping commands in a helper process; see `warden_program` for why.

The names are loaded when first used: whoever only wants to find a family (`warden_program`) does not pay for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.execution.warden.warden_client import Child, Command, SpawnRefused, Warden, WardenLost

__all__ = ["Child", "Command", "SpawnRefused", "Warden", "WardenLost"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from treadle.execution.warden import warden_client

        return getattr(warden_client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
