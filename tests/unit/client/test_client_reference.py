"""The reference of the SDK is what the code says, and the code says something about everything that is public."""

from __future__ import annotations

import inspect
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from treadle import client, types

REPOSITORY: Final = Path(__file__).resolve().parents[3]
GENERATOR: Final = runpy.run_path(str(REPOSITORY / "scripts" / "make_reference.py"))
REFERENCE: Final = (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8")


def _public() -> list[tuple[str, Any]]:
    names: set[str] = GENERATOR["public_names"]()
    return [(name, getattr(client if name in client.__all__ else types, name)) for name in sorted(names)]


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    for base in cls.__mro__:
        if base.__module__.startswith("treadle."):
            for name, member in vars(base).items():
                if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
                    yield name, member


def test_reference_is_up_to_date() -> None:
    assert GENERATOR["render"]() == REFERENCE, "run `make generate`, or scripts/make_reference.py"


def test_reference_is_the_same_each_time() -> None:
    assert GENERATOR["render"]() == GENERATOR["render"]()


def test_every_public_class_and_function_has_a_docstring() -> None:
    docs = GENERATOR["class_docs"]
    things = [(name, thing) for name, thing in _public() if isinstance(thing, type) or inspect.isfunction(thing)]
    bare = [name for name, thing in things if not (docs(thing) if isinstance(thing, type) else inspect.getdoc(thing))]
    assert bare == []


def test_every_public_method_has_a_docstring() -> None:
    classes = [(name, thing) for name, thing in _public() if isinstance(thing, type)]
    bare = {
        f"{name}.{method}"
        for name, cls in classes
        for method, member in _methods(cls)
        if not inspect.getdoc(getattr(member, "__func__", member))
    }
    assert sorted(bare) == []


def test_both_faces_take_the_same_parameters() -> None:
    differing = []
    for name, cls in _public():
        if name.startswith("Async"):
            twin = dict(_methods(getattr(client, name.removeprefix("Async"))))
            for method, member in _methods(cls):
                if inspect.isfunction(member):
                    ours, theirs = (list(inspect.signature(one).parameters) for one in (member, twin[method]))
                    if ours != theirs:
                        differing.append(f"{name}.{method}")
    assert differing == []


def test_every_public_name_is_in_the_reference() -> None:
    headings = {line.removeprefix("### ") for line in REFERENCE.splitlines() if line.startswith("### ")}
    listed = {
        line.split("`")[1].rpartition(".")[2] for line in REFERENCE.splitlines() if line.startswith("- `treadle.")
    }
    assert {name for name, _ in _public()} - headings - listed == set()
