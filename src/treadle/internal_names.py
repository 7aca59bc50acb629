"""Names of a package's modules, importable from the package itself: for tests.

A test that imports `Journal` from `treadle.agent` does not break when the package is cut into other modules. The names
stand under `if TYPE_CHECKING:` at the end of each `__init__.py`, written there by `scripts/make_internal_names.py`;
type checkers read them, and `__getattr__` reads the same lines. No other code of Treadle imports names this way, and
they are not public: `__all__` is.
"""

from __future__ import annotations

import sys
from importlib import import_module

BEGIN = "if TYPE_CHECKING:  # for tests: see treadle.internal_names\n"


def internal_name(package: str, name: str) -> object:
    """The name, from the module of the package that the list in its `__init__.py` gives for it."""
    spec = sys.modules[package].__spec__
    source = getattr(spec.loader, "get_source", lambda _: "")(package) if spec is not None else ""
    for line in source.partition(BEGIN)[2].splitlines():
        module, _, names = line.removeprefix("    from ").partition(" import ")
        if name in names.split(", "):
            return getattr(import_module(module), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
