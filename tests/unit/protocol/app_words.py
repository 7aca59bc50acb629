"""Every `Word` of the protocol."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import treadle.protocol.app as app
from treadle.protocol.app import Word


def words() -> list[type[Word]]:
    for module in pkgutil.iter_modules(app.__path__, f"{app.__name__}."):
        import_module(module.name)
    return sorted(Word.__subclasses__(), key=lambda word: word.__name__)
