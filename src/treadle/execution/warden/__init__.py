"""Starting, signalling and reaping commands in a helper process; see `program` for why."""

from treadle.execution.warden.client import Child, Command, SpawnRefused, Warden, WardenLost

__all__ = ["Child", "Command", "SpawnRefused", "Warden", "WardenLost"]
