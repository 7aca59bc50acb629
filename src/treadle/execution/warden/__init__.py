"""Starting, signalling and reaping commands in a helper process; see `program` for why.

The names are loaded when first used: whoever only wants to find a family (`program`) does not pay for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.execution.warden.client import Child, Command, SpawnRefused, Warden, WardenLost

__all__ = ["Child", "Command", "SpawnRefused", "Warden", "WardenLost"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from treadle.execution.warden import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
