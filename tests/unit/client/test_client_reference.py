"""The reference of the SDK is what the code says, and the code says something about everything that is public."""

from __future__ import annotations

import inspect
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import treadle
from treadle import client, types

REPOSITORY: Final = Path(__file__).resolve().parents[3]
GENERATOR: Final = runpy.run_path(str(REPOSITORY / "scripts" / "make_reference.py"))
PAGES: Final = GENERATOR["PAGES"]
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.target.name)
def test_the_reference_of_a_package_has_all_of_its_public_names_and_says_something_of_each(page: Any) -> None:
    text = page.target.read_text(encoding="utf-8")
    assert GENERATOR["render_page"](page) == text, "run `make generate`, or scripts/make_reference.py"
    headings = {line.removeprefix("### ") for line in text.splitlines() if line.startswith("### ")}
    assert set(page.package.__all__) == headings
    bare = []
    for name in page.package.__all__:
        thing = getattr(page.package, name)
        if isinstance(thing, type):
            bare += [name] if not GENERATOR["class_docs"](thing) else []
            own = GENERATOR["_methods"](thing)
            internal = {"event", "subjects"}  # of a hook: said once, at `HookInput`
            bare += [f"{name}.{each}" for each, method in own if not inspect.getdoc(method) and each not in internal]
        elif inspect.isfunction(thing) and not inspect.getdoc(thing):
            bare.append(name)
    assert bare == []


def test_every_name_of_treadle_itself_is_in_a_reference() -> None:
    texts = [REFERENCE, *(page.target.read_text(encoding="utf-8") for page in PAGES)]
    listed = {name for text in texts for name in re.findall(r"`treadle\.(?:\w+\.)?(\w+)`", text)}
    aliases = set(GENERATOR["ALIASES"])
    elsewhere = {"AppServer", "ArgumentError", "ArgumentTypeError", "ArgumentValueError", "TreadleError"}
    assert set(treadle.__all__) - listed - aliases - elsewhere == {"__version__"}
    pages = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "docs").glob("*.md"))
    assert [name for name in elsewhere | aliases if f"`{name}" not in pages and f"treadle.{name}" not in pages] == []


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
