"""`apply_patch`: one patch, from its text over the approval to the changed files.

It owns the item of the patch, and tells the running diff of the turn. Reading, planning and applying patches is
`treadle.tools.patch`. The names in a patch are resolved once, before anybody is asked; what is read, shown, allowed and
written is what they led to then (`PinnedFiles`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs, to_builtins

from treadle.agent.approval_policy import Risk
from treadle.agent.authority import file_policy
from treadle.agent.tools.approval import Action, Approval, Outcome, Request, is_yes
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
from treadle.tools.patch import FileChange, Patch, PatchError, apply, parse, paths, plan


async def apply_patch(turn: Turn, call_id: str, text: str, cwd: str | None = None) -> str:
    """What the model is told."""
    approval = Approval(turn, "a patch")
    where = cwd or approval.settings.cwd
    try:
        patch = parse(text)
        files = await PinnedFiles.resolve(paths(patch, where), await file_policy(turn.thread))
        changes = await _plan(patch, files, where)
    except (PatchError, ExecError) as error:
        return _not_applied(turn, error)
    if not changes:
        return "the patch was read, and changes nothing"
    return await _PatchCall(turn, call_id, changes, files, approval).run()


def _not_applied(turn: Turn, error: PatchError | ExecError) -> str:
    """For the model, and for people: the item of a patch has no place for a reason."""
    text = f"the patch was not applied: {error.message}"
    turn.report.warning(text)
    return text


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


class _PatchCall:
    def __init__(
        self, turn: Turn, call_id: str, changes: Sequence[FileChange], files: PinnedFiles, approval: Approval
    ) -> None:
        self._turn = turn
        self._thread = turn.thread
        self._approval = approval
        self._changes = changes
        self._files = files
        self._written, self._removed = _locations(changes, files)
        shown = sorted(changes, key=lambda change: change.path)  # as clients know it; applied in the order of the patch
        self._item = FileChangeThreadItem(
            id=call_id, changes=tuple(_shown(change) for change in shown), status="inProgress"
        )

    async def run(self) -> str:
        beyond = not self._inside()
        self._turn.items.start(self._item)
        if {*self._written, *self._removed} <= self._thread.authority.files:
            return await self._apply(beyond)
        outcome = await self._approval.seek(Risk(untrusted=True, beyond=beyond), self._request(beyond))
        return await self._after(outcome, beyond)

    def _inside(self) -> bool:
        files = self._files
        return all(map(files.may_write, self._written)) and all(map(files.may_remove, self._removed))

    def _request(self, beyond: bool) -> Request:
        def params() -> FileChangeRequestApprovalParams:
            opened = self._turn.items.find(self._item.id)
            assert opened is not None
            reasons = ["it writes outside of the sandbox"] if beyond else []
            return FileChangeRequestApprovalParams(
                thread_id=self._thread.id,
                turn_id=self._turn.id,
                item_id=self._item.id,
                started_at_ms=opened.item.started_at_ms or 0,
                reason="; ".join([*reasons, *self._detours()]) or None,
            )

        method = "item/fileChange/requestApproval"
        return Request(method, params, FileChangeRequestApprovalResponse, lambda: self._action(beyond))

    def _action(self, beyond: bool) -> Action:
        from treadle.protocol.app.reviews import ApplyPatchGuardianApprovalReviewAction  # loaded with the first review

        cwd = self._approval.settings.cwd
        names = [(change.path, change.move_path) for change in self._changes]
        files = tuple(dict.fromkeys(name for pair in names for name in pair if name is not None))
        return Action(
            item_id=self._item.id,
            shown=ApplyPatchGuardianApprovalReviewAction(cwd=cwd, files=files),
            exact={
                "tool": "apply_patch",
                "cwd": cwd,
                "changes": to_builtins(self._item.changes),
                "writes": [location.path for location in self._written],
                "removes": [location.path for location in self._removed],
                "reach": "outside of the sandbox" if beyond else "inside of the sandbox",
            },
        )

    def _detours(self) -> Iterator[str]:
        """The names that are not where they seem to be."""
        touched = {*self._written, *self._removed}
        for name, target in self._files.targets.items():
            for location in {target.file, target.entry} & touched:
                if location.path != name:
                    yield f"{name} leads to {location.path}"

    async def _after(self, outcome: Outcome, beyond: bool) -> str:
        """Go on as it was decided."""
        if is_yes(outcome):
            told = await self._apply(beyond)
            if outcome == "acceptForSession" and not self._approval.outdated:
                locations = {*self._written, *self._removed}
                self._thread.authority.files |= locations | set(map(self._files.current, locations))
            return told
        self._finish("failed" if outcome in ("failed", "refused") else "declined")
        return self._approval.denied(outcome)

    async def _apply(self, beyond: bool) -> str:
        """`beyond`: the user has allowed these files, whatever the sandbox says."""
        if self._approval.outdated:
            self._finish("declined")
            return self._approval.denied("withdrawn")
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
        self._turn.items.complete(structs.replace(self._item, status=status))

    def _tell_diff(self) -> None:
        for change in self._changes:
            self._turn.diff.add(change)
        params = TurnDiffUpdatedNotification(
            thread_id=self._thread.id, turn_id=self._turn.id, diff=self._turn.diff.text(self._approval.settings.cwd)
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
