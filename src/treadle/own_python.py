"""Our own Python code: how a child that runs it is started, and where a running process finds its modules.

Python looks for modules in the working directory or in the folder of the script, which may be the project of an agent:
a `msgspec.py` in a cloned repository, or a `pybase64.py` that a confined command wrote, would run unconfined.

- A child of ours starts isolated (`isolated_python`, `treadle_command`): it takes modules from where Python and its
  packages are installed and, for Treadle and its dependencies, from where this process finds them.
- In a process that has more on its path, such as a user's `python bot.py`, `pin_imports` is called before anything is
  run that may write. From then on modules that we use come from where they were: installed ones first, and any other
  folder of the path offers no more of them than it had, whatever it leads to by now. The user's own modules are looked
  up as ever.

Not protected: an installation that commands may write, as in a virtual environment inside of the workspace.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Sequence
from functools import cache
from importlib import machinery
from typing import TYPE_CHECKING, Final

from treadle.errors import ExecError

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from importlib.metadata import EntryPoint
    from types import ModuleType

PACKAGES: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder that has the package `treadle`."""

_DEPENDENCIES: Final = (
    *("anyio", "click", "h11", "httpcore2", "httptools", "httpx2", "idna", "markdown_it", "mdurl", "msgspec"),
    *("prompt_toolkit", "pybase64", "pygments", "rich", "truststore", "typing_extensions", "wcwidth", "websockets"),
)
# What those import where it is there: nobody may put it there later.
_OPTIONAL: Final = (
    *("async_timeout", "asyncpg", "gssapi", "sspilib"),
    *("IPython", "PIL", "_interpqueues", "_interpreters", "_pytest", "_typeshed", "_winreg", "annotationlib"),
    *("asyncssh", "attr", "attrs", "backports", "brotli", "brotlicffi", "certifi", "chardet", "colorama"),
    *("compression", "ctags", "docutils", "exceptiongroup", "h2", "httpx2_jsfetch", "ipywidgets", "linkify_it"),
    # `keyring`, and what it imports.
    *("keyring", "jaraco", "secretstorage", "jeepney", "importlib_metadata", "more_itertools", "dbus", "win32ctypes"),
    *("outcome", "pyperclip", "pytest", "python_socks", "requests", "sniffio", "socksio", "sphinx", "tomli"),
    *("tomli_w", "trio", "urllib3", "uvloop", "werkzeug", "winloop", "wsproto", "yaml", "zstandard"),
)
# What the standard library imports and does not have itself: of other systems, and made when Python was built.
_OF_LIBRARY: Final = (
    *("_wmi", "comtypes", "java", "org", "vms_lib", "win32api", "win32con", "win32evtlog", "win32evtlogutil"),
    f"_sysconfigdata_{getattr(sys, 'abiflags', '')}_{sys.platform}_{getattr(sys.implementation, '_multiarch', '')}",
)
PINNED: Final = {"treadle", *_DEPENDENCIES, *_OPTIONAL, *_OF_LIBRARY, *sys.stdlib_module_names}
"""Modules that we may import at any time, by the first part of their names."""

_DESCRIPTIONS: Final = (".dist-info", ".egg-info")
BOOT: Final = (
    "import sys; sys.path += [folder for folder in sys.argv.pop(1).split('\\n') if folder not in sys.path]; "
    "sys.argv[0] = 'treadle'; from treadle.cli import main; raise SystemExit(main())"
)
"""The code that runs Treadle from the folders of its first argument: Python's `-c`."""


# --- children ---


def isolated_python(*words: str, program: str | None = None) -> list[str]:
    """The command line of a Python that looks for modules neither in its working directory, nor in the folder of its
    script, nor where variables say. Everything that starts Python starts it by this.

    Args:
        words: What follows: options, then `-c` and the code, or a file, and arguments.
        program: Another Python than that of this process.
    """
    if program is None and (not sys.executable or getattr(sys, "frozen", False)):
        # A program frozen into one file is its own "Python": it would start itself.
        raise ExecError("Treadle needs a Python interpreter to run its helper programs, and this program has none")
    return [program or sys.executable, "-I", *words]


def treadle_command(*words: str) -> list[str]:
    """The command line of `treadle WORDS` with the Treadle of this process, wherever that was found."""
    # Where this process finds Treadle and its dependencies. The child has most of these on its path anyway.
    folders = dict.fromkeys(map(os.path.dirname, own_packages()))
    return [*isolated_python("-c", BOOT, "\n".join(folders)), *words]


@cache
def own_packages() -> list[str]:
    """The folders and files of Treadle and its dependencies, as this process finds them."""
    # The folder of a script, or the working directory, is the first on the path: asked last, it is hardly ever needed.
    others = _others()[::-1]
    found = [os.path.join(PACKAGES, "treadle")]
    for name in _DEPENDENCIES:
        path = [*_installed(), PACKAGES, *(folder for folder in others if name in _offer(folder))]
        spec = machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None:
            module = spec.origin if spec.submodule_search_locations is None else os.path.dirname(spec.origin)
            found.append(os.path.abspath(module))
    return found


# --- this process ---


def pin_imports() -> None:
    """Let modules that we import later come from where they are found now. The first call counts."""
    if PathFinder.offered is None:
        PathFinder.offered = {_absolute(folder): _names(folder) for folder in _others()}
        sys.meta_path[:] = [PathFinder if finder is machinery.PathFinder else finder for finder in sys.meta_path]


class PathFinder(machinery.PathFinder):
    """Python's own, but for the modules in `PINNED`. Other import hooks find it by its name."""

    offered: dict[str, frozenset[str]] | None = None
    """What the folders of the path had when imports were pinned, or when they came onto the path."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None and fullname in PINNED:
            path = [*_installed(), *(folder for folder in _others() if fullname in _offer(folder))]
        return super().find_spec(fullname, path, target)


def plug_ins(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points that other packages offer, by name; once imports are pinned, those that were there then.

    Args:
        group: Such as `treadle.engines`.
    """
    from importlib.metadata import Distribution  # 20 ms

    found: dict[str, list[EntryPoint]] = {}
    packages: set[str] = set()
    offers = {folder: _names(folder) for folder in _installed()} | {folder: _offer(folder) for folder in _others()}
    for folder, names in offers.items():
        for name in sorted(names):
            package = name.partition("-")[0].lower()
            if not name.endswith(_DESCRIPTIONS) or package in packages:
                continue
            packages.add(package)
            for point in Distribution.at(os.path.join(folder, name)).entry_points:
                if point.group == group:
                    PINNED.add(point.module.partition(".")[0])
                    found.setdefault(point.name, []).append(point)
    return found


def _offer(folder: str) -> frozenset[str]:
    if PathFinder.offered is None:
        return _names(folder)
    where = _absolute(folder)
    # Who adds a folder to the path means what is in it; a working directory that was changed adds nothing.
    if where not in PathFinder.offered and os.path.isabs(folder):
        PathFinder.offered[where] = _names(folder)
    return PathFinder.offered.get(where, frozenset())


def _absolute(folder: str) -> str:
    try:
        return os.path.abspath(folder)  # links are not followed: a command can put one in the place of a folder
    except FileNotFoundError:  # the working directory was removed
        return folder


def _names(folder: str) -> frozenset[str]:
    """The modules and the descriptions of packages in a folder of the path."""
    try:
        with os.scandir(folder or ".") as entries:
            return frozenset(map(_name, entries))
    except NotADirectoryError:  # an archive
        return frozenset(PINNED)
    except OSError:
        return frozenset()


def _name(entry: os.DirEntry[str]) -> str:
    """Empty for what could only become a module, such as a folder without `__init__.py`."""
    suffixes = machinery.all_suffixes()
    if entry.name.endswith(_DESCRIPTIONS):
        return entry.name
    if os.path.isdir(entry.path):
        return entry.name if any(os.path.exists(f"{entry.path}/__init__{suffix}") for suffix in suffixes) else ""
    return entry.name.partition(".")[0] if entry.name.endswith(tuple(suffixes)) else ""


def _installed() -> list[str]:
    """The folders of the path that have the standard library and installed packages."""
    library = os.path.dirname(os.__file__)
    packages = {library, os.path.join(library, "lib-dynload"), *site.getsitepackages()}
    if site.ENABLE_USER_SITE:
        packages.add(site.getusersitepackages())
    return [folder for folder in sys.path if folder in packages]


def _others() -> list[str]:
    installed = _installed()
    # Python passes over what is no text, too.
    return [folder for folder in sys.path if isinstance(folder, str) and folder not in installed]
