"""apply_patch: a patch as an item, with approval and sandbox.

It owns the way of one patch from its text to the changed files, and the running diff of the turn. Reading, planning and
applying patches is `treadle.tools.patch`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import structs

from treadle.agent.approvals import (
    FAILED,
    REJECTED,
    Question,
    Verdict,
    course,
    read_verdict,
    refusal,
    reviewer_text,
    wait_for,
    warn_unreviewed,
)
from treadle.agent.confinement import may_write, thread_sandbox
from treadle.agent.turn import Turn
from treadle.errors import NOT_FOUND, ExecError
from treadle.execution.files.base import Files
from treadle.protocol.app.actions import (
    AddPatchChangeKind,
    DeletePatchChangeKind,
    FileUpdateChange,
    UpdatePatchChangeKind,
)
from treadle.protocol.app.approvals import FileChangeRequestApprovalParams, FileChangeRequestApprovalResponse
from treadle.protocol.app.items import FileChangeThreadItem
from treadle.protocol.app.thread_notifications import TurnDiffUpdatedNotification
from treadle.tools.arguments import ApplyPatchArguments, parse
from treadle.tools.patch import FileChange, Patch, PatchError, apply, paths, plan
from treadle.tools.patch import parse as parse_patch

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
    files = (await turn.thread.services.environment()).files
    try:
        changes = await _plan(parse_patch(text), files, cwd or turn.thread.settings.cwd)
    except PatchError as error:
        return f"the patch was not applied: {error.message}"
    if not changes:
        return "the patch was read, and changes nothing"
    return await _Patching(turn, call_id, changes, files).run()


async def _plan(patch: Patch, files: Files, cwd: str) -> list[FileChange]:
    there: dict[str, bytes | None] = {}
    for path in paths(patch, cwd):
        try:
            there[path] = await files.read(path)
        except ExecError as error:
            if error.code != NOT_FOUND:
                raise PatchError(f"{path} cannot be read: {error.message}", "failed", path=path) from None
            there[path] = None
    return plan(patch, there.__getitem__, cwd)


class _Patching:
    def __init__(self, turn: Turn, call_id: str, changes: Sequence[FileChange], files: Files) -> None:
        self._turn = turn
        self._thread = turn.thread
        self._settings = turn.thread.settings
        self._changes = changes
        self._files = files
        self._touched = {path for change in changes for path in (change.path, change.move_path) if path is not None}
        shown = sorted(changes, key=lambda change: change.path)  # as clients know it; applied in the order of the patch
        self._item = FileChangeThreadItem(
            id=call_id, changes=tuple(_shown(change) for change in shown), status="inProgress"
        )

    async def run(self) -> str:
        beyond = not await self._inside()
        self._turn.start_item(self._item)
        if self._touched <= self._thread.accepted_paths:
            return await self._apply()
        match course(self._settings, Question(untrusted=True, beyond=beyond)):
            case "go":
                return await self._apply()
            case "refuse":
                self._finish("failed")
                return refusal(self._settings)
            case "ask":
                return await self._after(await self._ask(beyond))

    async def _inside(self) -> bool:
        # What is protected stays so on every machine: we write these files ourselves.
        try:
            sandbox = await thread_sandbox(self._thread)
        except ExecError:  # a directory of the sandbox was replaced: nothing is inside of it now
            return False
        return all(may_write(sandbox, path) for path in self._touched)

    async def _ask(self, beyond: bool) -> Verdict:
        if reviewer_text(self._settings) is not None:
            warn_unreviewed(self._turn, "a patch")
            return "decline"
        ask = self._thread.open_ask("item/fileChange/requestApproval")
        opened = self._turn.open_item(self._item.id)
        assert opened is not None
        ask.params = FileChangeRequestApprovalParams(
            thread_id=self._thread.id,
            turn_id=self._turn.id,
            item_id=self._item.id,
            started_at_ms=opened.item.started_at_ms or 0,
            reason="it writes outside of the sandbox" if beyond else None,
        )
        return read_verdict(await wait_for(self._thread, ask), FileChangeRequestApprovalResponse)

    async def _after(self, verdict: Verdict) -> str:
        if verdict == "acceptForSession":
            self._thread.accepted_paths |= self._touched
        if verdict in ("accept", "acceptForSession"):
            return await self._apply()
        self._finish("failed" if verdict == "failed" else "declined")
        if verdict == "cancel":
            self._turn.interrupt()
        return FAILED if verdict == "failed" else reviewer_text(self._settings) or REJECTED

    async def _apply(self) -> str:
        try:
            await apply(self._changes, self._files)
        except PatchError as error:
            self._finish("failed")
            return f"the patch was not applied: {error.message}"
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
