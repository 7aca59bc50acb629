"""`RemotePatchFiles`: the files of a patch on another machine, with the interface of `PinnedFiles`.

What a decision is about is the canonical path that the other machine gave for a name. It is written without following
links, and by the sandbox of the thread, which that machine enforces; `may_write` foresees what it will say. A write
whose answer was lost with the connection is looked up and not just repeated: somebody may have changed the file since.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable

from treadle.errors import INVALID_REQUEST, NOT_FOUND, ExecError, OutcomeUnknown
from treadle.execution.files.files_interface import shown
from treadle.execution.files.pinned_files import Location, PinnedTarget
from treadle.execution.files.remote_files import RemoteFiles
from treadle.execution.sandbox.policy import Policy
from treadle.execution.uris import native_path
from treadle.protocol.exec import Sandbox


class RemotePatchFiles:
    """Of `looking`, which follows links, the files of a patch in a sandbox, without following any. `policy` is what the
    sandbox will come to there."""

    def __init__(
        self, targets: Iterable[PinnedTarget], looking: RemoteFiles, sandbox: Sandbox | None, policy: Policy | None
    ) -> None:
        self.targets: dict[str, PinnedTarget] = {target.name: target for target in targets}
        self._files = looking.confined(sandbox, follow=False)
        self._looking = looking
        self._policy = policy
        self._read: dict[str, bytes] = {}
        self._missing: set[str] = set()  # folders that could not be made before those above them
        self._links = {target.entry.path for target in self.targets.values() if target.link is not None}
        seen: dict[str, str] = {}
        for target in self.targets.values():
            other = seen.setdefault(target.file.path, target.name)
            if other != target.name:
                raise ExecError(
                    f"{shown(other)} and {shown(target.name)} are the same file; use one name", INVALID_REQUEST
                )

    @classmethod
    async def resolve(
        cls, names: Iterable[str], looking: RemoteFiles, sandbox: Sandbox | None, policy: Policy | None
    ) -> RemotePatchFiles:
        targets = await asyncio.gather(*(_resolve(looking, native_path(name)) for name in names))
        return cls(targets, looking, sandbox, policy)

    # --- permissions ---

    def lift(self) -> None:
        """Somebody has allowed the patch who may decide that."""
        self._files = self._looking.confined(None, follow=False)

    def may_write(self, location: Location) -> bool:
        return self._policy is None or self._policy.access(location.path) == "write"

    def may_remove(self, location: Location) -> bool:
        above = os.path.dirname(location.path)
        return self.may_write(location) and (self._policy is None or self._policy.access(above) == "write")

    def current(self, location: Location) -> Location:
        return location

    async def check(self) -> None:
        """Raise when a name leads elsewhere by now."""
        found = await asyncio.gather(*(_resolve(self._looking, name) for name in self.targets))
        for target in found:
            if self.targets[target.name] != target:
                raise ExecError(
                    f"{shown(target.name)} leads elsewhere now than when it was checked; look at what is there",
                    INVALID_REQUEST,
                )

    # --- operations ---

    async def read(self, path: str, /) -> bytes:
        data = self._read[path] = await self._files.read(path)
        return data

    async def write(self, path: str, data: bytes, /) -> None:
        before = self._read.get(path)

        async def done() -> bool:
            try:
                there = await self._files.read(path)
            except ExecError as error:
                if error.code == NOT_FOUND:
                    return False
                raise
            if there == data:
                return True
            if there == before or data.startswith(there):  # not begun, or in the middle of it
                return False
            raise ExecError(f"{shown(path)} was changed by somebody else while it was written", INVALID_REQUEST)

        await _once(lambda: self._files.write(path, data), done)

    async def remove(self, path: str, /, *, recursive: bool, missing_ok: bool) -> None:
        if path in self._links:
            raise ExecError(f"{shown(path)} is a symbolic link; remove it by a command", INVALID_REQUEST)

        async def gone() -> bool:
            return not await self._looking.exists(path)

        await _once(lambda: self._files.remove(path, recursive=False, missing_ok=missing_ok), gone)

    async def mkdir(self, path: str, /, *, parents: bool) -> None:
        async def made() -> bool:
            # One that was there before is not ours to take away again: then it is tried once more, and refused.
            return path in self._missing and await self._looking.exists(path)

        try:
            await _once(lambda: self._files.mkdir(path, parents=False), made)
        except ExecError as error:
            if error.code == NOT_FOUND:
                self._missing.add(path)
            raise


async def _once(act: Callable[[], Awaitable[None]], is_done: Callable[[], Awaitable[bool]]) -> None:
    """Do something that may not be done twice. Where nobody knows whether it was done, that is looked up."""
    try:
        await act()
    except OutcomeUnknown:
        if not await is_done():
            await act()


async def _resolve(files: RemoteFiles, name: str) -> PinnedTarget:
    above, below = os.path.dirname(name), os.path.basename(name)
    while True:  # the nearest folder that is there, without links
        try:
            entry = os.path.join(native_path(await files.canonicalize(above)), below)
            break
        except ExecError as error:
            if error.code != NOT_FOUND or above == "/":
                raise
            above, below = os.path.dirname(above), os.path.join(os.path.basename(above), below)
    at = _location(entry)
    try:
        if not (await files.stat(name)).is_symlink:
            return PinnedTarget(name, at, at, None)
        real = native_path(await files.canonicalize(name))
    except ExecError as error:
        if error.code != NOT_FOUND:
            raise
        return PinnedTarget(name, at, at, None)
    return PinnedTarget(name, _location(real), at, real)


def _location(path: str) -> Location:
    return Location(path, os.path.dirname(path), (0, 0))
