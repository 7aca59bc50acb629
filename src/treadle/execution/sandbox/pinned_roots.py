"""The directories that a thread's sandbox opens for writing, resolved once, when the thread gets them.

A path is only a name: a command that may write the directory above it can put a link to another place there, and the
next command would be let in at that place. So a thread remembers where each of its paths led (in its record, for a
later server too) and, while it is in memory, which directory that was. What leads elsewhere now is refused.
Owns the resolving and the comparison. What commands may do there is said in `sandbox_modes`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from treadle.execution.sandbox.policy import contains, refused, resolve_path
from treadle.execution.sandbox.profile_sandbox import Confinement, ProfileSandbox
from treadle.protocol.app.settings import WorkspaceWriteSandboxPolicy

Identity: TypeAlias = tuple[int, int]


class Pin(NamedTuple):
    """Where a path led: `canonical` has no symbolic links in it, `identity` is None while there is nothing."""

    canonical: str
    identity: Identity | None


class Pins:
    """By path, as it was given."""

    def __init__(self, pins: Mapping[str, Pin] | None = None) -> None:
        self._pins = dict(pins or {})

    @classmethod
    def known(cls, roots: Mapping[str, str] | None) -> Pins:
        """From a record. Which directory it was is not known any more, only its name."""
        return cls({path: Pin(canonical, None) for path, canonical in (roots or {}).items()})

    def __getitem__(self, path: str) -> str:
        return self._pins[path].canonical

    def on_record(self) -> dict[str, str]:
        return {path: pin.canonical for path, pin in self._pins.items()}

    def covers(self, policy: Confinement, cwd: str) -> bool:
        return all(path in self._pins for path in pinned_paths(policy, cwd))

    def changed(self, policy: Confinement, cwd: str, fresh: Mapping[str, Pin]) -> Pins:
        """For other settings: a path that the thread has already keeps its meaning, whatever is there by now."""
        pins: dict[str, Pin] = {}
        for path in pinned_paths(policy, cwd):
            kept, found = self._pins.get(path), fresh.get(path)
            if kept is not None and not (found is not None and kept == (found.canonical, None)):
                pins[path] = kept
            elif found is not None:
                pins[path] = found
        return Pins(pins)

    def check(self, policy: Confinement, cwd: str) -> None:
        """Blocking. Raises `ExecError` when a path leads elsewhere than it did."""
        paths = pinned_paths(policy, cwd)
        ends = [self[path] for path in paths]
        for path in paths:
            found, links = _find(path)
            self._compare(path, found)
            for link in links:
                if any(contains(end, os.path.dirname(link)) for end in ends):
                    raise refused(
                        f"{path!a} goes through the symbolic link {link!a}, which a command could replace; give the "
                        f"thread the path that it leads to ({found.canonical!a}) instead"
                    )

    def _compare(self, path: str, found: Pin) -> None:
        pin = self._pins[path]
        if found.canonical != pin.canonical:
            raise refused(
                f"{path!a} led to {pin.canonical!a} when the thread got it and leads to {found.canonical!a} now; put "
                "it back, or start a new thread if the change was yours"
            )
        if found.identity is None:
            return
        if pin.identity not in (None, found.identity):
            raise refused(
                f"{path!a} is not the directory any more that it was when the thread got it; put that one back, or "
                "start a new thread if the change was yours"
            )
        self._pins[path] = found


def pinned_paths(policy: Confinement, cwd: str, *, temporary: bool = True) -> list[str]:
    """What the policy opens for writing, and always the working directory; as written."""
    paths = [cwd]
    if isinstance(policy, WorkspaceWriteSandboxPolicy):
        paths += (os.path.join(cwd, root) for root in policy.writable_roots)
        paths += _temporary_directories(policy) if temporary else ()
    elif isinstance(policy, ProfileSandbox):
        paths += policy.writable_paths(cwd, temporary=temporary)
    return list(dict.fromkeys(paths))


def _temporary_directories(policy: WorkspaceWriteSandboxPolicy) -> list[str]:
    paths = [] if policy.exclude_slash_tmp else ["/tmp"]
    given = os.environ.get("TMPDIR", "")
    if not policy.exclude_tmpdir_env_var and os.path.isabs(given):  # a relative one would be another one everywhere
        paths.append(given)
    return paths


def pin(policy: Confinement, cwd: str) -> dict[str, Pin]:
    """Where the paths lead now. Blocking."""
    return {path: _found(os.path.realpath(path)) for path in pinned_paths(policy, cwd)}


def _find(path: str) -> tuple[Pin, tuple[str, ...]]:
    try:
        resolved = resolve_path(path)
    except (OSError, ValueError) as error:
        raise refused(f"{path!a} cannot be resolved: {error}") from None
    return _found(resolved.canonical), resolved.links


def _found(canonical: str) -> Pin:
    try:
        status = os.lstat(canonical)
    except (OSError, ValueError):
        return Pin(canonical, None)
    return Pin(canonical, (status.st_dev, status.st_ino))
