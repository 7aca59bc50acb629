"""The directories that a sandbox opens for writing, what in them stays as it is, and the home, which is hidden.

`Pins` are the directories that a thread's sandbox opens for writing, resolved once, when the thread gets them. A path
is only a name: a command that may write the directory above it can put a link to another place there, and the next
command could write at that place. So a thread stores where each of its paths led (in its record, for a later server
too) and, while it is in memory, which directory that was. What leads elsewhere now is refused.

Orders (`protected_paths`) are what such a program does without asking when it is next started there: hooks, settings,
plug-ins, servers of tools, commands. Instructions that a model reads (`AGENTS.md`, `CLAUDE.md`) are none: agents are
asked to change them. A name that is missing is protected too: a command must not make it. A missing file only where its
program is installed, because what holds its name is an empty file in the user's project, which git lists.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from treadle.execution.sandbox.policy import ResolvedPath, contains, refused, resolve_path
from treadle.execution.sandbox.profile_sandbox import Confinement, ProfileSandbox
from treadle.execution.uris import uri_from_path
from treadle.execution.user_files import read_regular
from treadle.own_python import plug_ins
from treadle.protocol.app.settings import WorkspaceWriteSandboxPolicy
from treadle.protocol.exec import SandboxEntry, SandboxPath, SandboxPathValue

logger: logging.Logger = logging.getLogger(__name__)

GIT: Final = ".git"
# With what the built-in engines name as their `orders`; a test compares.
DIRECTORIES: Final = (GIT, ".codex", ".treadle", ".agents", ".claude", ".opencode", ".pi")
FILES: Final = {".mcp.json": "claude", "opencode.json": "opencode", "opencode.jsonc": "opencode"}
"""With the programs that read them."""
# What models are meant to read in the home. It carries authority, so it is never writable.
INSTRUCTIONS: Final = ("skills", "prompts", "AGENTS.md", "AGENTS.override.md")
_ENGINES: Final = "treadle.engines"
_MAX_POINTER: Final = 4096 + 64  # a path and the word before it


# --- pins ------------------------------------------------------------------------------------------------------------


class Pin(NamedTuple):
    """Where a path led: `canonical` has no symbolic links in it, `identity` (device and inode) is None while there is
    nothing."""

    canonical: str
    identity: tuple[int, int] | None


class Pins:
    """The pins of a thread, by path as it was given."""

    def __init__(self, pins: Mapping[str, Pin] | None = None) -> None:
        self._pins = dict(pins or {})

    @classmethod
    def known(cls, roots: Mapping[str, str] | None) -> Pins:
        """The pins of a record. Which directory it was is not known any more, only its name."""
        return cls({path: Pin(canonical, None) for path, canonical in (roots or {}).items()})

    def __getitem__(self, path: str) -> str:
        return self._pins[path].canonical

    def __len__(self) -> int:
        return len(self._pins)

    def on_record(self) -> dict[str, str]:
        return {path: pin.canonical for path, pin in self._pins.items()}

    def covers(self, policy: Confinement, cwd: str) -> bool:
        return all(path in self._pins for path in pinned_paths(policy, cwd))

    def changed(self, policy: Confinement, cwd: str, fresh: Mapping[str, Pin]) -> Pins:
        """The pins for other settings: a path that the thread has already keeps its meaning, whatever is there by
        now."""
        pins: dict[str, Pin] = {}
        for path in pinned_paths(policy, cwd):
            kept, found = self._pins.get(path), fresh.get(path)
            if kept is not None and not (found is not None and kept == (found.canonical, None)):
                pins[path] = kept
            elif found is not None:
                pins[path] = found
        return Pins(pins)

    def check(self, policy: Confinement, cwd: str) -> None:
        self.check_paths(pinned_paths(policy, cwd))

    def check_paths(self, paths: Sequence[str]) -> None:
        """Raise `ExecError` when a path leads elsewhere than it did; one that is new is known from now on. Blocking."""
        links: list[tuple[str, str]] = []
        for path in paths:
            try:
                resolved = resolve_path(path)
            except (OSError, ValueError) as error:
                raise refused(f"{path!a} cannot be resolved: {error}") from None
            found = _found(resolved.canonical)
            pin = self._pins.setdefault(path, found)
            if found.canonical != pin.canonical:
                raise refused(
                    f"{path!a} led to {pin.canonical!a} when the thread got it and leads to {found.canonical!a} now; "
                    "put it back, or start a new thread if the change was yours"
                )
            if found.identity is not None:
                if pin.identity not in (None, found.identity):
                    raise refused(
                        f"{path!a} is not the directory any more that it was when the thread got it; put that one "
                        "back, or start a new thread if the change was yours"
                    )
                self._pins[path] = found
            links += ((path, link) for link in resolved.links)
        ends = [self[path] for path in paths]
        for path, link in links:
            if any(contains(end, os.path.dirname(link)) for end in ends):
                raise refused(
                    f"{path!a} goes through the symbolic link {link!a}, which a command could replace; give the "
                    f"thread the path that it leads to ({self[path]!a}) instead"
                )


def pinned_paths(policy: Confinement, cwd: str, *, temporary: bool = True) -> list[str]:
    """What the policy opens for writing, and always the working directory; as written."""
    paths = [cwd]
    if isinstance(policy, WorkspaceWriteSandboxPolicy):
        paths += (os.path.join(cwd, root) for root in policy.writable_roots)
        if temporary and not policy.exclude_slash_tmp:
            paths.append("/tmp")
        given = os.environ.get("TMPDIR", "")
        if temporary and not policy.exclude_tmpdir_env_var and os.path.isabs(given):
            paths.append(given)  # a relative one would be another one everywhere
    elif isinstance(policy, ProfileSandbox):
        paths += policy.writable_paths(cwd, temporary=temporary)
    return list(dict.fromkeys(paths))


def pin(policy: Confinement, cwd: str) -> dict[str, Pin]:
    """Where the paths lead now. Blocking."""
    return {path: _found(os.path.realpath(path)) for path in pinned_paths(policy, cwd)}


def _found(canonical: str) -> Pin:
    try:
        status = os.lstat(canonical)
    except (OSError, ValueError):
        return Pin(canonical, None)
    return Pin(canonical, (status.st_dev, status.st_ino))


# --- orders ----------------------------------------------------------------------------------------------------------


@functools.cache
def protected_names() -> tuple[str, ...]:
    """The names, with those of engines that other packages offer: their commands are started in the same projects."""
    names = [*DIRECTORIES, *FILES]
    for name, points in plug_ins(_ENGINES).items():
        try:
            orders = [order for point in points for order in point.load().orders]
        except Exception as error:
            logger.warning("what the engine %r takes orders from is not protected: %r", name, error)
        else:
            names += (order for order in orders if order == os.path.basename(order) and order.strip("."))
    return tuple(dict.fromkeys(names))


def protected_paths(roots: Sequence[str], writable: Sequence[str], opened: Sequence[str] = ()) -> list[str]:
    """The paths to protect; canonical, for canonical roots, but for links, which stand beside what they lead to.
    Blocking.

    `opened` are those of the roots that are protected paths themselves, and were named by somebody who wants them to be
    written: a `.git` in which commits are to be made.
    """
    found: dict[str, None] = {}
    for root in roots:
        if root in opened or not os.path.isdir(root):  # nothing is granted where there is nothing
            continue
        for name in protected_names():
            path = os.path.join(root, name)
            if name in FILES and not os.path.lexists(path) and shutil.which(FILES[name]) is None:
                continue
            resolved = _followed(path, root)
            found.update((link, None) for link in resolved.links if _is_in(writable, link))
            behind = [resolved.canonical] if resolved.links else []
            if not resolved.links:
                found[path] = None
            if name == GIT:
                behind += _git_directories(resolved.canonical, root)
            for directory in behind:
                if _is_in(writable, directory) and not any(contains(directory, each) for each in roots):
                    found[directory] = None
    return [path for path in found if not _is_in(opened, path)]


def _is_in(directories: Sequence[str], path: str) -> bool:
    return any(contains(directory, path) for directory in directories)


def _followed(path: str, root: str) -> ResolvedPath:
    """Where the path leads. Refuses a link whose end cannot be protected, since it has the whole root in it."""
    try:
        found = resolve_path(path)
    except OSError:
        raise refused(f"{path!a} is a circle of symbolic links; remove it") from None
    if contains(found.canonical, root):
        raise refused(
            f"{path!a} is a symbolic link to {found.canonical!a}, which commands may write; remove it, or put a "
            "directory there"
        )
    return found


def _git_directories(path: str, root: str) -> Iterator[str]:
    """The real directories behind the `.git` of the root: of a worktree or submodule, and what worktrees share."""
    pointer = _text(path)
    if pointer is not None:
        word, _, target = pointer.partition(":")
        if word != "gitdir":
            return
        path = os.path.realpath(os.path.join(root, target.strip()))
        yield path
    shared = _text(os.path.join(path, "commondir"))
    if shared is not None:
        yield os.path.realpath(os.path.join(path, shared.strip()))


def _text(path: str) -> str | None:
    """The text of a small regular file; None for anything else."""
    found = read_regular(path, _MAX_POINTER + 1)
    return None if found is None or len(found[0]) > _MAX_POINTER or b"\0" in found[0] else os.fsdecode(found[0])


# --- the home --------------------------------------------------------------------------------------------------------


_OF_SETTINGS: Final = ("config.toml", "auth.json", "keys.json", "mcp_tokens")


class HiddenHome:
    """The home in use, which commands must not see, whatever else they may do, but for the instructions in it. It is
    made when it is missing, so that there is something to cover."""

    def __init__(self, home: str) -> None:
        with contextlib.suppress(OSError):  # where we cannot make it, no command can
            os.makedirs(home, mode=0o700, exist_ok=True)
        found = resolve_path(os.path.abspath(home))
        self._path, self._links = found.canonical, found.links

    def has(self, path: str) -> bool:
        return contains(self._path, path)

    def is_in(self, root: str) -> bool:
        return contains(root, self._path)

    def reserves(self, root: str) -> bool:
        """Whether the root is the home itself, or is in a part of it that nobody may write."""
        name = os.path.relpath(root, self._path).split("/")[0]
        return self.has(root) and name in (".", *INSTRUCTIONS, *_OF_SETTINGS)

    def check_links(self, writable: Iterable[str]) -> None:
        """A link that a command could replace would decide what the next server takes for its home."""
        for link in self._links:
            if any(contains(root, os.path.dirname(link)) for root in writable):
                raise refused(
                    f"the home of Treadle is found through the symbolic link {link!a}, which a command could "
                    f"replace; set TREADLE_HOME to {self._path!a}"
                )

    def check_outside(self, cwd: str) -> None:
        if cwd == self._path:
            raise refused(
                f"the working directory {cwd!a} is the home of Treadle itself, with its settings and its "
                "login, which commands must not see; choose another"
            )

    def entries(self, may_read: Callable[[str], bool] = lambda path: True) -> Iterable[SandboxEntry]:
        """The instructions are left out where the rest of the sandbox does not let them be read."""
        yield path_entry(self._path, "none")
        for path in (os.path.realpath(os.path.join(self._path, name)) for name in INSTRUCTIONS):
            if may_read(path):
                yield path_entry(path, "read", "skip")


def root_entry() -> SandboxEntry:
    return SandboxEntry(path=SandboxPath(type="special", value=SandboxPathValue(kind="root")), access="read")


def minimal_entry() -> SandboxEntry:
    return SandboxEntry(path=SandboxPath(type="special", value=SandboxPathValue(kind="minimal")), access="read")


def path_entry(path: str, access: str, missing: str | None = None) -> SandboxEntry:
    return SandboxEntry(
        path=SandboxPath(type="path", path=uri_from_path(path)), access=access, missing_path_behavior=missing
    )
