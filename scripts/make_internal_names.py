"""Let tests import from packages: write which names each package has for them, and rewrite the tests' imports.

python scripts/make_internal_names.py           after modules were merged, moved or renamed
python scripts/make_internal_names.py --check   say what would change, and fail if anything would
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from treadle.internal_names import BEGIN

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
# Packages that hold names for tests. `compat` is tested as its users import it.
PACKAGES = [
    *(f"treadle.{path.parent.name}" for path in sorted(SOURCE.glob("treadle/*/__init__.py"))),
    "treadle.protocol.app",
]
NOT_HERE = {"treadle.compat", "treadle.protocol"}
WIDTH = 120


def defined_names() -> dict[str, set[str]]:
    """The public names that each module defines at its top level (not those it imports)."""
    found = {}
    for path in SOURCE.glob("treadle/**/*.py"):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        found[module] = set(_top_level(ast.parse(path.read_text()).body))
    return found


def _top_level(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If(body=then, orelse=otherwise) | ast.Try(body=then, orelse=otherwise):
                yield from _top_level([*then, *otherwise])


def package_of(module: str) -> str | None:
    return next((name for name in reversed(PACKAGES) if module.startswith(f"{name}.") and name not in NOT_HERE), None)


class Names:
    """What can be imported from which package, by the rule that a name of a package stands for one thing."""

    def __init__(self) -> None:
        self._defined = defined_names()
        self._modules: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for module, names in self._defined.items():
            package = package_of(module)
            for name in names if package else ():
                self._modules[package or ""][name].add(module)
        self.wanted: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def package_for(self, module: str, name: str) -> str | None:
        """The package from which a test imports the name, if it can: not two things, not private, not a module."""
        package = package_of(module)
        if package is None or name.startswith("_") or name not in self._defined.get(module, ()):
            return None
        if self._modules[package][name] != {module} or f"{package}.{name}" in self._defined:
            return None
        if name not in exported(package):
            self.wanted[package][module].add(name)
        return package


@cache
def exported(package: str) -> set[str]:
    """The names of the package's `__all__`."""
    for node in ast.parse(init_file(package).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def init_file(package: str) -> Path:
    return SOURCE / Path(*package.split(".")) / "__init__.py"


def rewritten(source: str, names: Names) -> str:
    """The source of a test with imports from packages in place of imports from their modules."""
    lines = source.splitlines(keepends=True)
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    for node in sorted(imports, key=lambda node: node.lineno, reverse=True):
        module = node.module or ""
        if package_of(module) is None:
            _want(package=module, node=node, names=names)
            continue
        homes: dict[str, list[str]] = defaultdict(list)
        for alias in node.names:
            text = alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"
            homes[names.package_for(module, alias.name) or module].append(text)
        if set(homes) != {module}:
            indent = " " * node.col_offset
            comment = lines[node.lineno - 1].partition("#")[2]
            text = "".join(
                f"{indent}from {home} import {', '.join(found)}" + (f"  #{comment.rstrip()}" if comment else "") + "\n"
                for home, found in homes.items()
            )
            lines[node.lineno - 1 : node.end_lineno] = [text]
    return "".join(lines)


def _want(package: str, node: ast.ImportFrom, names: Names) -> None:
    """Imports from a package that are there already: they stay wanted, from the module that has the name now."""
    if package not in PACKAGES or package in NOT_HERE:
        return
    for alias in node.names:
        for module in names._modules[package].get(alias.name, ()):
            if alias.name not in exported(package) and f"{package}.{alias.name}" not in names._defined:
                names.wanted[package][module].add(alias.name)


def with_names(source: str, wanted: dict[str, set[str]]) -> str:
    """The source of an `__init__.py` with these names for tests."""
    head = source.partition(f"\n# fmt: off\n# isort: off\n{BEGIN}")[0].rstrip("\n") + "\n"
    lines = []
    for module in sorted(wanted):
        line = f"    from {module} import "
        start = line
        for name in sorted(wanted[module]):
            if len(line) + len(name) + 2 > WIDTH and line != start:
                lines.append(line.removesuffix(", "))
                line = start
            line += f"{name}, "
        lines.append(line.removesuffix(", "))
    return head + "\n\n# fmt: off\n# isort: off\n" + BEGIN + "\n".join(lines) + "\n"


def main() -> int:
    names = Names()
    new = {path: rewritten(path.read_text(), names) for path in sorted((ROOT / "tests").glob("**/*.py"))}
    for package, wanted in names.wanted.items():
        path = init_file(package)
        new[path] = with_names(path.read_text(), wanted)
    changed = [path for path, source in new.items() if source != path.read_text()]
    for path in changed:
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.write_text(new[path])
    if not changed:
        print("up to date")
    return 1 if changed and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
