"""What is asked before something is done, and what each answer says."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from treadle.cli import Question, approval_question
from treadle.pages import ChangeBlock, item_blocks
from treadle.protocol.app import (
    AdditionalFileSystemPermissions,
    AddPatchChangeKind,
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    FileChangeRequestApprovalParams,
    FileChangeRequestApprovalResponse,
    FileChangeThreadItem,
    FileUpdateChange,
    McpServerElicitationRequestParams,
    PermissionsRequestApprovalParams,
    RequestPermissionProfile,
    encode,
)

IDS: dict[str, Any] = {"thread_id": "t", "turn_id": "u", "item_id": "i", "started_at_ms": 0}


def shown(question: Question, width: int = 80) -> list[str]:
    console = Console(file=StringIO(), width=width, highlight=False, markup=False)
    for block in question.blocks():
        console.print(block)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def _blocks(patch: FileChangeThreadItem) -> list[ChangeBlock]:
    return [block for block in item_blocks(patch) if isinstance(block, ChangeBlock)]


def ask(method: str, params: Any, changes: FileChangeThreadItem | None = None) -> Question:
    question = approval_question(method, params, None if changes is None else _blocks(changes))
    assert question is not None
    return question


def command(**fields: Any) -> Question:
    given: dict[str, Any] = {"command": "/bin/bash -lc 'npm install'", "cwd": "/w", **fields}
    params = CommandExecutionRequestApprovalParams(**IDS, **given)
    return ask("item/commandExecution/requestApproval", params)


def patch(lines: int = 1) -> FileChangeThreadItem:
    diff = "".join(f"line {number}\n" for number in range(lines))
    change = FileUpdateChange(path="/w/new", kind=AddPatchChangeKind(), diff=diff)
    return FileChangeThreadItem(id="i", changes=(change,), status="inProgress")


def test_a_command_is_shown_with_its_reason_and_choices() -> None:
    assert shown(command(reason="May I install what is needed?")) == [
        "! Run this command?",
        "  │ npm install",
        "  in /w",
        "  why: May I install what is needed?",
        "  y  yes",
        "  a  yes, and for the rest of this session",
        "  n  no, and tell the agent what to do instead",
        "  q  no, and stop the turn",
    ]


@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ("y", "accept"),
        ("Y\n", "accept"),
        ("yes", "accept"),
        ("a", "acceptForSession"),
        ("n", "decline"),
        ("q", "cancel"),
    ],
)
def test_each_choice_has_its_answer(typed: str, decision: str) -> None:
    choice = command().choose(typed)
    assert choice is not None
    assert choice.answer == CommandExecutionRequestApprovalResponse(decision=decision)  # type: ignore[arg-type]
    assert choice.allows is (decision in ("accept", "acceptForSession"))


@pytest.mark.parametrize("typed", ["", " ", "\n", "x", "ja", "yy", "y\nrm", "\x1b[A", "\x04"])
def test_what_is_not_understood_is_no_choice(typed: str) -> None:
    assert command().choose(typed) is None


def test_no_answer_is_no() -> None:
    assert command().no == CommandExecutionRequestApprovalResponse(decision="decline")
    question = ask("item/fileChange/requestApproval", FileChangeRequestApprovalParams(**IDS), patch())
    assert question.no == FileChangeRequestApprovalResponse(decision="decline")


def test_only_what_is_offered_can_be_chosen() -> None:
    assert [choice.key for choice in command(available_decisions=("accept", "cancel")).choices] == ["y", "q"]


def test_all_that_is_judged_is_shown() -> None:
    long = "echo " + "x" * 5000
    text = "".join(line.strip(" │") for line in shown(command(command=long)))
    assert text.count("x") >= 5000
    question = ask("item/fileChange/requestApproval", FileChangeRequestApprovalParams(**IDS), patch(500))
    assert [line.strip() for line in shown(question)].count("+line 250") == 1


def test_a_patch_that_cannot_be_seen_cannot_be_allowed() -> None:
    question = ask("item/fileChange/requestApproval", FileChangeRequestApprovalParams(**IDS, reason="it leaves"))
    assert not any(choice.allows for choice in question.choices)
    assert "  why: it leaves" in shown(question)


def test_what_others_wrote_does_not_act_on_the_terminal() -> None:
    evil = "\x1b[2J\u202e"
    text = "\n".join(shown(command(command=evil, reason=evil, cwd=evil)))
    assert text.count("\\x1b[2J\\u202e") == 3
    assert "\x1b" not in text


def test_more_permissions_are_spelt_out() -> None:
    wanted = RequestPermissionProfile(file_system=AdditionalFileSystemPermissions(write=("/data",)))
    params = PermissionsRequestApprovalParams(
        thread_id="t", turn_id="u", item_id="i", cwd="/w", started_at_ms=0, permissions=wanted
    )
    question = ask("item/permissions/requestApproval", params)
    assert "  │ write /data" in shown(question)
    answers = {choice.key: encode(choice.answer).decode() for choice in question.choices}
    assert "/data" in answers["y"]
    assert '"session"' in answers["a"]
    assert "/data" not in answers["n"]


@pytest.mark.parametrize(("schema", "keys"), [({}, "ynq"), ({"properties": {"name": {"type": "string"}}}, "nq")])
def test_a_form_cannot_be_filled_in(schema: Any, keys: str) -> None:
    params = McpServerElicitationRequestParams(
        thread_id="t", server_name="s", mode="form", message="go on?", requested_schema=schema
    )
    question = ask("mcpServer/elicitation/request", params)
    assert "".join(choice.key for choice in question.choices) == keys
    assert '"decline"' in encode(question.no).decode()


def test_a_request_that_is_no_question_of_this_kind() -> None:
    assert approval_question("item/tool/call", object()) is None
