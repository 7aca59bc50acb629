"""`apply_patch`: one patch, from its text over the approval to the changed files; `TurnDiff`: everything that patches
have changed in a turn, as one diff in the manner of git.

It owns the item of the patch. Reading, planning and applying patches is `treadle.tools.patch`. The names in a patch are
resolved once, before anybody is asked; what is read, shown, allowed and written is what they led to then
(`PinnedFiles`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs, to_builtins

from treadle.agent.thread.authority import file_policy, rules_of, turn_sandbox
from treadle.agent.thread.thread_state import Workplace
from treadle.agent.tools.approval import PATCH, Approval, ApprovalQuestion, ReviewedAction, Risk, ToolUse, is_yes
from treadle.agent.tools.command_call import workplace
from treadle.agent.turn.turn import Turn
from treadle.errors import NOT_FOUND, ExecError
from treadle.execution.files.pinned_files import Location, PinnedFiles
from treadle.protocol.app.approvals import (
    ApplyPatchGuardianApprovalReviewAction,
    FileChangeRequestApprovalParams,
    FileChangeRequestApprovalResponse,
)
from treadle.protocol.app.item_parts import (
    AddPatchChangeKind,
    DeletePatchChangeKind,
    FileUpdateChange,
    UpdatePatchChangeKind,
)
from treadle.protocol.app.items import FileChangeThreadItem
from treadle.protocol.app.notifications import TurnDiffUpdatedNotification
from treadle.tools.patch import FileChange, PatchError, apply, parse, paths, plan
from treadle.tools.patch.grammar import take_environment
from treadle.tools.patch.planner import unified

if TYPE_CHECKING:
    from treadle.execution.files.remote_patch_files import RemotePatchFiles

# --- one patch --------------------------------------------------------------------------------------------------------


async def apply_patch(turn: Turn, call_id: str, text: str, cwd: str | None = None) -> str:
    """The answer for the model."""
    approval = Approval(turn, "a patch")
    try:
        text, environment_id = take_environment(text)
        place = workplace(approval.settings, environment_id)
        settings = approval.settings.at(place)
        where = cwd or settings.cwd
        patch = parse(text)
        files: PinnedFiles | RemotePatchFiles
        if place.is_local:
            files = await PinnedFiles.resolve(paths(patch, where), await file_policy(turn, settings))
        else:
            from treadle.execution.remote_machine import patch_files  # loaded with the first patch elsewhere

            machine, sandbox = turn.thread.services.machine(place.environment), await turn_sandbox(turn, settings)
            files = await patch_files(machine, paths(patch, where), sandbox, rules_of(sandbox, settings))
        there: dict[str, bytes | None] = {}
        for name, target in files.targets.items():
            try:
                there[name] = await files.read(target.file.path)
            except ExecError as error:
                if error.code != NOT_FOUND:
                    raise PatchError(f"{name} cannot be read: {error.message}", "failed", path=name) from None
                there[name] = None
        changes = plan(patch, there.__getitem__, where)
    except (PatchError, ExecError) as error:
        return _not_applied(turn, error)
    if not changes:
        return "the patch was read, and changes nothing"
    return await _PatchCall(turn, call_id, text, changes, files, approval, place).run()


def _not_applied(turn: Turn, error: PatchError | ExecError) -> str:
    """The answer for a patch that was not applied; people get a warning, since its item has no place for a reason."""
    text = f"the patch was not applied: {error.message}"
    turn.report.warning(text)
    return text


class _PatchCall:
    def __init__(
        self,
        turn: Turn,
        call_id: str,
        text: str,
        changes: Sequence[FileChange],
        files: PinnedFiles | RemotePatchFiles,
        approval: Approval,
        place: Workplace,
    ) -> None:
        self._turn = turn
        self._thread = turn.thread
        self._approval = approval
        self._place = place
        self._text = text
        self._changes = changes
        self._files = files
        self._written: list[Location] = []
        self._removed: list[Location] = []
        for change in changes:
            target = files.targets[change.path]
            if change.move_path is not None:
                self._written.append(files.targets[change.move_path].file)
            if change.move_path is not None or change.kind == "delete":
                self._removed.append(target.entry)  # of a link the link, not what it leads to
            else:
                self._written.append(target.file)
        shown = sorted(changes, key=lambda change: change.path)  # as clients know it; applied in the order of the patch
        self._item = FileChangeThreadItem(
            id=call_id, changes=tuple(_shown(change) for change in shown), status="inProgress"
        )

    async def run(self) -> str:
        files = self._files
        beyond = not (all(map(files.may_write, self._written)) and all(map(files.may_remove, self._removed)))
        self._turn.items.start(self._item)
        if {*self._written, *self._removed} <= self._thread.authority.files:
            return await self._apply(beyond)
        outcome = await self._approval.seek(Risk(untrusted=True, beyond=beyond), self._request(beyond))
        if not is_yes(outcome):
            self._finish("failed" if outcome in ("failed", "refused") else "declined")
            return self._approval.denied(outcome)
        answer = await self._apply(beyond)
        if outcome == "acceptForSession" and not self._approval.outdated:
            locations = {*self._written, *self._removed}
            self._thread.authority.files |= locations | set(map(files.current, locations))
        return answer

    def _request(self, beyond: bool) -> ApprovalQuestion:
        def params() -> FileChangeRequestApprovalParams:
            opened = self._turn.items.find(self._item.id)
            assert opened is not None
            reasons = ["it writes outside of the sandbox"] if beyond else []
            touched = {*self._written, *self._removed}
            for name, target in self._files.targets.items():
                reasons += [
                    f"{name} leads to {location.path}"
                    for location in {target.file, target.entry} & touched
                    if location.path != name
                ]
            return FileChangeRequestApprovalParams(
                thread_id=self._thread.id,
                turn_id=self._turn.id,
                item_id=self._item.id,
                started_at_ms=opened.item.started_at_ms or 0,
                reason="; ".join(reasons) or None,
            )

        method = "item/fileChange/requestApproval"
        return ApprovalQuestion(
            method,
            params,
            FileChangeRequestApprovalResponse,
            ToolUse(self._item.id, PATCH, {"command": self._text}),
            lambda: self._action(beyond),
        )

    def _action(self, beyond: bool) -> ReviewedAction:
        cwd = self._place.cwd
        names = [(change.path, change.move_path) for change in self._changes]
        files = tuple(dict.fromkeys(name for pair in names for name in pair if name is not None))
        return ReviewedAction(
            item_id=self._item.id,
            shown=ApplyPatchGuardianApprovalReviewAction(cwd=cwd, files=files),
            exact={
                "tool": "apply_patch",
                "cwd": cwd,
                **({} if self._place.is_local else {"machine": self._place.environment}),
                "changes": to_builtins(self._item.changes),
                "writes": [location.path for location in self._written],
                "removes": [location.path for location in self._removed],
                "reach": "outside of the sandbox" if beyond else "inside of the sandbox",
            },
        )

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
        diff = self._turn.diff = self._turn.diff or TurnDiff()
        for change in self._changes:
            diff.add(change)
        params = TurnDiffUpdatedNotification(
            thread_id=self._thread.id, turn_id=self._turn.id, diff=diff.text(self._place.cwd)
        )
        self._thread.journal.emit("turn/diff/updated", params)
        letters = {"add": "A", "delete": "D", "update": "M"}
        lines = [f"{letters[change.kind]} {change.move_path or change.path}" for change in self._changes]
        return "\n".join(["Success. Updated the following files:", *lines])

    def _finish(self, status: str) -> None:
        self._turn.items.complete(structs.replace(self._item, status=status))


def _shown(change: FileChange) -> FileUpdateChange:
    match change.kind:
        case "add":
            return FileUpdateChange(path=change.path, kind=AddPatchChangeKind(), diff=change.diff)
        case "delete":
            return FileUpdateChange(path=change.path, kind=DeletePatchChangeKind(), diff=change.diff)
        case "update":
            kind = UpdatePatchChangeKind(move_path=change.move_path)
            return FileUpdateChange(path=change.path, kind=kind, diff=change.diff)


def _resolved(change: FileChange, files: PinnedFiles | RemotePatchFiles) -> FileChange:
    """The change by what its names led to. What goes away is the entry: of a link the link, not what it leads to."""
    target = files.targets[change.path]
    if change.move_path is not None:
        return structs.replace(change, path=target.entry.path, move_path=files.targets[change.move_path].file.path)
    return structs.replace(change, path=target.entry.path if change.kind == "delete" else target.file.path)


# --- all patches of a turn --------------------------------------------------------------------------------------------


_NOTHING: Final = "0" * 40
MAX_DIFF_CHARS: Final = 1 << 20


class _Changed(Struct):
    """`origin` is where the file was when the turn began, `old` what was in it; `new` is what is there now."""

    origin: str
    old: bytes | None
    new: bytes | None


class TurnDiff:
    def __init__(self) -> None:
        self._files: dict[str, _Changed] = {}

    def add(self, change: FileChange) -> None:
        known = self._files.pop(change.path, None) or _Changed(change.path, change.old, None)
        if change.move_path is not None:
            self._files[change.move_path] = _Changed(known.origin, known.old, change.new)
        else:
            self._files[change.path] = _Changed(known.origin, known.old, change.new)

    def text(self, cwd: str) -> str:
        files = sorted(self._files.items(), key=lambda entry: entry[1].origin)
        parts = [_diff(path, changed, cwd) for path, changed in files]
        text = "".join(parts)
        return text if len(text) <= MAX_DIFF_CHARS else text[:MAX_DIFF_CHARS] + "\n[the rest of the diff is left out]\n"


def _diff(path: str, changed: _Changed, cwd: str) -> str:
    if changed.old == changed.new and changed.origin == path:
        return ""
    before, after = _relative(changed.origin, cwd), _relative(path, cwd)
    head = f"diff --git a/{before} b/{after}\n"
    if changed.old is None:
        head += "new file mode 100644\n"
    elif changed.new is None:
        head += "deleted file mode 100644\n"
    head += f"index {_blob(changed.old)}..{_blob(changed.new)}\n"
    head += f"--- {'/dev/null' if changed.old is None else f'a/{before}'}\n"
    head += f"+++ {'/dev/null' if changed.new is None else f'b/{after}'}\n"
    return head + unified(changed.old or b"", changed.new or b"")


def _relative(path: str, cwd: str) -> str:
    return path[len(cwd) :].lstrip("/") if path.startswith(cwd.rstrip("/") + "/") else path.lstrip("/")


def _blob(data: bytes | None) -> str:
    """The name that git gives to a file's content."""
    if data is None:
        return _NOTHING
    from hashlib import sha1  # loads OpenSSL; few turns have a patch

    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
