"""Treadle runs coding agents, and the commands they need, from Python.

The names below are the public API. They are loaded when first used, so that `import treadle` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from treadle._version import __version__

if TYPE_CHECKING:
    from treadle.errors import ExecError, ExecTimeout, TreadleError
    from treadle.execution import Environment, ExecParams
    from treadle.server import AppServer

_HOME = {
    "AppServer": "treadle.server",
    "Environment": "treadle.execution",
    "ExecError": "treadle.errors",
    "ExecParams": "treadle.execution",
    "ExecTimeout": "treadle.errors",
    "TreadleError": "treadle.errors",
}

__all__ = ["AppServer", "Environment", "ExecError", "ExecParams", "ExecTimeout", "TreadleError", "__version__"]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'treadle' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
