"""apply_patch: a patch as an item, with approval and sandbox.

It owns the way of one patch from its text to the changed files, and the running diff of the turn. Reading, planning and
applying patches is `treadle.tools.patch`. The names in a patch are resolved once, before anybody is asked; what is
read, shown, allowed and written is what they led to then (`PinnedFiles`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import structs

from treadle.agent.approval_policy import (
    Question,
    Verdict,
    ask_user,
    course,
    refusal,
    refused_text,
    reviewer_text,
    warn_refused,
    warn_unreviewed,
)
from treadle.agent.authority import file_rules, thread_sandbox
from treadle.agent.state import Settings
from treadle.agent.thread import Thread
from treadle.agent.turn import Turn
from treadle.errors import NOT_FOUND, ExecError
from treadle.execution.files.pinned_files import Location, PinnedFiles
from treadle.protocol.app.actions import (
    AddPatchChangeKind,
    DeletePatchChangeKind,
    FileUpdateChange,
    UpdatePatchChangeKind,
)
from treadle.protocol.app.approvals import FileChangeRequestApprovalParams, FileChangeRequestApprovalResponse
from treadle.protocol.app.items import FileChangeThreadItem
from treadle.protocol.app.thread_notifications import TurnDiffUpdatedNotification
from treadle.tools.patch import FileChange, Patch, PatchError, apply, paths, plan
from treadle.tools.patch import parse as parse_patch
from treadle.tools.tool_arguments import ApplyPatchArguments, parse

if TYPE_CHECKING:
    from treadle.execution.sandbox.policy import Policy

# A model without the tool writes the patch to a program of that name, as a here-document.
_HEREDOC: Final = re.compile(
    r"\s*(?:cd\s+(?P<cd>[^\s;&|<>'\"$`]+)\s*&&\s*)?apply_?patch\s*<<-?\s*(?P<q>['\"]?)(?P<end>\w+)(?P=q)[ \t]*\n"
    r"(?P<patch>.*)\n(?P=end)\s*",
    re.DOTALL,
)


def patch_in_command(cmd: str) -> tuple[str, str | None] | None:
    """The patch that a shell command consists of, and the directory that it changes to first."""
    found = _HEREDOC.fullmatch(cmd)
    return None if found is None else (found["patch"] + "\n", found["cd"])


async def apply_patch_function(turn: Turn, call_id: str, text: str) -> str:
    return await apply_patch(turn, call_id, parse(text, ApplyPatchArguments).input)


async def apply_patch(turn: Turn, call_id: str, text: str, cwd: str | None = None) -> str:
    """What the model is told."""
    settings, epoch = turn.thread.settings, turn.thread.authority.epoch
    where = cwd or settings.cwd
    try:
        patch = parse_patch(text)
        files = await PinnedFiles.resolve(paths(patch, where), await file_policy(turn.thread))
        changes = await _plan(patch, files, where)
    except (PatchError, ExecError) as error:
        return _not_applied(turn, error)
    if not changes:
        return "the patch was read, and changes nothing"
    return await _Patching(turn, call_id, changes, files, settings, epoch).run()


def _not_applied(turn: Turn, error: PatchError | ExecError) -> str:
    """For the model, and for people: the item of a patch has no place for a reason."""
    text = f"the patch was not applied: {error.message}"
    turn.warn(text)
    return text


async def file_policy(thread: Thread) -> Policy | None:
    """What the thread may do with files that this process opens for it, on every machine. Raises `ExecError`."""
    return await asyncio.to_thread(file_rules, await thread_sandbox(thread))


async def _plan(patch: Patch, files: PinnedFiles, cwd: str) -> list[FileChange]:
    there: dict[str, bytes | None] = {}
    for name, target in files.targets.items():
        try:
            there[name] = await files.read(target.file.path)
        except ExecError as error:
            if error.code != NOT_FOUND:
                raise PatchError(f"{name} cannot be read: {error.message}", "failed", path=name) from None
            there[name] = None
    return plan(patch, there.__getitem__, cwd)


class _Patching:
    def __init__(
        self,
        turn: Turn,
        call_id: str,
        changes: Sequence[FileChange],
        files: PinnedFiles,
        settings: Settings,
        epoch: int,
    ) -> None:
        self._turn = turn
        self._thread = turn.thread
        self._settings = settings
        self._epoch = epoch
        self._changes = changes
        self._files = files
        self._written, self._removed = _locations(changes, files)
        shown = sorted(changes, key=lambda change: change.path)  # as clients know it; applied in the order of the patch
        self._item = FileChangeThreadItem(
            id=call_id, changes=tuple(_shown(change) for change in shown), status="inProgress"
        )

    async def run(self) -> str:
        beyond = not self._inside()
        self._turn.start_item(self._item)
        if {*self._written, *self._removed} <= self._thread.authority.files:
            return await self._apply(beyond)
        match course(self._settings, Question(untrusted=True, beyond=beyond)):
            case "go":
                return await self._apply()
            case "refuse":
                self._finish("failed")
                warn_refused(self._turn, "a patch")
                return refusal(self._settings)
            case "ask":
                return await self._after(await self._ask(beyond), beyond)

    def _inside(self) -> bool:
        files = self._files
        return all(map(files.may_write, self._written)) and all(map(files.may_remove, self._removed))

    async def _ask(self, beyond: bool) -> Verdict:
        if reviewer_text(self._settings) is not None:
            warn_unreviewed(self._turn, "a patch")
            return "decline"
        ask = self._thread.open_ask("item/fileChange/requestApproval")
        opened = self._turn.open_item(self._item.id)
        assert opened is not None
        reasons = ["it writes outside of the sandbox"] if beyond else []
        ask.params = FileChangeRequestApprovalParams(
            thread_id=self._thread.id,
            turn_id=self._turn.id,
            item_id=self._item.id,
            started_at_ms=opened.item.started_at_ms or 0,
            reason="; ".join([*reasons, *self._detours()]) or None,
        )
        return await ask_user(self._thread, ask, FileChangeRequestApprovalResponse)

    def _detours(self) -> Iterator[str]:
        """The names that are not where they seem to be."""
        touched = {*self._written, *self._removed}
        for name, target in self._files.targets.items():
            for location in {target.file, target.entry} & touched:
                if location.path != name:
                    yield f"{name} leads to {location.path}"

    async def _after(self, verdict: Verdict, beyond: bool) -> str:
        if verdict in ("accept", "acceptForSession"):
            told = await self._apply(beyond)
            if verdict == "acceptForSession" and not self._outdated:
                locations = {*self._written, *self._removed}
                self._thread.authority.files |= locations | set(map(self._files.current, locations))
            return told
        self._finish("failed" if verdict == "failed" else "declined")
        if verdict == "cancel":
            self._turn.interrupt()
        return refused_text(self._settings, verdict)

    @property
    def _outdated(self) -> bool:
        return self._thread.authority.epoch != self._epoch

    async def _apply(self, beyond: bool = False) -> str:
        """`beyond`: the user has allowed these files, whatever the sandbox says."""
        if self._outdated:
            self._finish("declined")
            return refused_text(self._settings, "withdrawn")
        if beyond:
            self._files.lift()
        try:
            await self._files.check()
            await apply([_resolved(change, self._files) for change in self._changes], self._files)
        except (PatchError, ExecError) as error:
            self._finish("failed")
            return _not_applied(self._turn, error)
        self._finish("completed")
        self._tell_diff()
        return "Success. Updated the following files:\n" + "\n".join(map(_line, self._changes))

    def _finish(self, status: str) -> None:
        self._turn.complete_item(structs.replace(self._item, status=status))

    def _tell_diff(self) -> None:
        for change in self._changes:
            self._turn.diff.add(change)
        params = TurnDiffUpdatedNotification(
            thread_id=self._thread.id, turn_id=self._turn.id, diff=self._turn.diff.text(self._settings.cwd)
        )
        self._thread.journal.emit("turn/diff/updated", params)


def _line(change: FileChange) -> str:
    letter = {"add": "A", "delete": "D", "update": "M"}[change.kind]
    return f"{letter} {change.move_path or change.path}"


def _shown(change: FileChange) -> FileUpdateChange:
    match change.kind:
        case "add":
            return FileUpdateChange(path=change.path, kind=AddPatchChangeKind(), diff=change.diff)
        case "delete":
            return FileUpdateChange(path=change.path, kind=DeletePatchChangeKind(), diff=change.diff)
        case "update":
            kind = UpdatePatchChangeKind(move_path=change.move_path)
            return FileUpdateChange(path=change.path, kind=kind, diff=change.diff)


def _resolved(change: FileChange, files: PinnedFiles) -> FileChange:
    """The change by what its names led to. What goes away is the entry: of a link the link, not what it leads to."""
    target = files.targets[change.path]
    if change.move_path is not None:
        return structs.replace(change, path=target.entry.path, move_path=files.targets[change.move_path].file.path)
    return structs.replace(change, path=target.entry.path if change.kind == "delete" else target.file.path)


def _locations(changes: Sequence[FileChange], files: PinnedFiles) -> tuple[list[Location], list[Location]]:
    """What is written and what is removed."""
    written: list[Location] = []
    removed: list[Location] = []
    for change in changes:
        target = files.targets[change.path]
        if change.move_path is not None:
            written.append(files.targets[change.move_path].file)
            removed.append(target.entry)
        elif change.kind == "delete":
            removed.append(target.entry)
        else:
            written.append(target.file)
    return written, removed
