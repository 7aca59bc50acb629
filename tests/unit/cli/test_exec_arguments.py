"""The command line of `treadle exec`: words in, what is wanted out."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from treadle.cli import ExecArguments, ExecRequest, Problem, exec_command, exec_request, more_roots, overrides, warnings
from treadle.errors import TreadleError
from treadle.protocol.app import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewTarget,
    UncommittedChangesReviewTarget,
)


def parsed(*words: str) -> ExecArguments:
    got: list[ExecArguments] = []

    def take(arguments: ExecArguments) -> int:
        got.append(arguments)
        return 0

    exec_command(take).main(list(words), standalone_mode=False)
    return got[0]


def request(*words: str) -> ExecRequest:
    return exec_request(parsed(*words))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize("option", ["--image", "--add-dir", "--model", "--thread-source", "resume"])
def test_what_is_sent_has_to_be_text(option: str, folder: Path) -> None:
    (folder / "a\udcff").touch()
    with pytest.raises(Problem, match=r"is no text: .*udcff") as caught:
        request(option, "a\udcff", "go on")
    assert "half a character" in str(caught.value.why)


@pytest.mark.parametrize(
    ("words", "resume", "prompt"),
    [
        ((), None, None),
        (("-",), None, "-"),
        (("do it",), None, "do it"),
        (("--", "--weird"), None, "--weird"),
        (("--json", "do it", "--ephemeral"), None, "do it"),
        (("resume", "ID"), "ID", None),
        (("resume", "ID", "-"), "ID", "-"),
        (("--json", "--color=never", "resume", "ID", "-"), "ID", "-"),
        (("resume", "--json", "ID", "go on", "-m", "M"), "ID", "go on"),
        (("--model", "M", "resume", "ID", "--image", "a.png"), "ID", None),
        (("resume", "--last"), "", None),
        (("resume", "--last", "go on"), "", "go on"),
        (("--last", "resume", "go on", "--all"), "", "go on"),
    ],
)
def test_which_thread_and_which_prompt(
    words: tuple[str, ...], resume: str | None, prompt: str | None, folder: Path
) -> None:
    asked = request(*words)
    assert (asked.resume, asked.prompt) == (resume, prompt)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("one", "two"), "put quotes around it"),
        (("resume",), "which thread?"),
        (("resume", ""), "which thread?"),
        (("resume", "ID", "one", "two"), "put quotes around it"),
        (("--last", "go on"), "--last goes with resume and fork"),
        (("resume", "ID", "--ephemeral"), "--ephemeral is for a new thread"),
        (("fork",), "which thread?"),
        (("review", "--json"), "what is to be reviewed?"),
        (("review", "--uncommitted", "--base", "main"), "--uncommitted and --base do not go together"),
        (("review", "--base", "main", "look"), "--base and a prompt do not go together"),
        (("review", "look", "--title", "T"), "--title goes with --commit"),
        (("review", "look", "--image", "a.png"), "--image does not go with review"),
        (("look", "--commit", "abc"), "--commit goes with review"),
        (("--oss", "x"), "--oss is not offered"),
        (("--local-provider", "ollama", "x"), "--local-provider is not offered"),
        (("--worktree", "x"), "git worktree add"),
        (("--approve-for-me", "x"), "--approve-for-me is not offered"),
        (("--ignore-user-config", "x"), "TREADLE_HOME"),
        (("-C", "nowhere", "x"), "is no directory"),
        (("-i", "gone.png"), "the image gone.png cannot be read\n  why: No such file"),
        (("--output-schema", "nowhere", "x"), "nowhere cannot be read\n  why: No such file"),
    ],
)
def test_what_cannot_be_done_is_said(words: tuple[str, ...], said: str, folder: Path) -> None:
    with pytest.raises(TreadleError, match=said):
        request(*words)


@pytest.mark.parametrize(
    ("words", "images", "prompt"),
    [
        (("--image", "a.png"), ["a.png"], None),
        (("--image", "a.png,b.png"), ["a.png", "b.png"], None),
        (("--image", "a.png", "--image", "b.png", "look"), ["a.png", "b.png", "look"], None),
        (("-i", "a.png", "b.png", "--", "look"), ["a.png", "b.png"], "look"),
        (("look", "-i", "a.png"), ["a.png"], "look"),
    ],
)
def test_images(words: tuple[str, ...], images: list[str], prompt: str | None, folder: Path) -> None:
    if words[-1] == "look" and "--" not in words:  # no file of that name: it is the prompt
        images, prompt = images[:-1], "look"
    asked = request(*words)
    assert asked.images == tuple(str(folder / name) for name in images)
    assert asked.prompt == prompt


@pytest.mark.parametrize(
    ("words", "sandbox"),
    [
        ((), None),
        (("-s", "read-only"), "read-only"),
        (("--yolo",), "danger-full-access"),
        (("--dangerously-bypass-approvals-and-sandbox", "-s", "read-only"), "danger-full-access"),
        (("--full-auto",), "workspace-write"),
        (("--full-auto", "-s", "read-only"), "read-only"),
    ],
)
def test_what_may_be_done(words: tuple[str, ...], sandbox: str | None) -> None:
    assert request(*words).sandbox == sandbox


def test_settings_behind_options() -> None:
    arguments = parsed("-c", "a=1", "-p", "night \U0001f319", "--enable", "x", "--disable", "y", "-c", "b=2")
    assert overrides(arguments) == [
        "a=1",
        "b=2",
        'profile="night \U0001f319"',
        "features.x=true",
        "features.y=false",
    ]


def test_more_folders_are_added_to_the_configured_ones(folder: Path) -> None:
    assert more_roots(parsed("x"), ["/one"]) == []
    wanted = f'sandbox_workspace_write.writable_roots=["/one", "{folder}/two", "/three"]'
    assert more_roots(parsed("--add-dir", "two", "--add-dir", "/three", "x"), ["/one"]) == [wanted]


def test_a_schema_is_read(folder: Path) -> None:
    (folder / "schema.json").write_text('{"type": "object"}')
    assert request("--output-schema", "schema.json", "x").output_schema == {"type": "object"}
    (folder / "schema.json").write_text('{"type"')
    with pytest.raises(TreadleError, match="is no JSON"):
        request("--output-schema", "schema.json", "x")


def test_what_changes_nothing_is_taken() -> None:
    words = ("--skip-git-repo-check", "--ignore-rules", "--dangerously-bypass-hook-trust", "-a", "never")
    arguments = parsed(*words, "--cyber-access-program", "standard", "x")
    assert warnings(arguments) == []
    assert exec_request(arguments).prompt == "x"


@pytest.mark.parametrize(
    ("words", "approval"),
    [
        ((), None),
        (("--approval", "untrusted"), "untrusted"),
        (("-a", "never"), "never"),
        (("--ask-for-approval", "on-failure"), "on-request"),
        (("--yolo",), "never"),
        (("--yolo", "-a", "untrusted"), "untrusted"),
    ],
)
def test_when_to_ask(words: tuple[str, ...], approval: str | None) -> None:
    assert request(*words, "x").approval == approval


def test_the_retired_policy_is_taken_with_a_note_and_not_advertised() -> None:
    (note,) = warnings(parsed("-a", "on-failure", "x"))
    assert "on-request is used" in note
    with pytest.raises(click.BadParameter) as caught:
        parsed("-a", "sometimes", "x")
    assert "'never'" in str(caught.value)
    assert "on-failure" not in str(caught.value)


def test_what_is_taken_and_not_done_is_said() -> None:
    said = warnings(parsed("--full-auto", "--cyber-access-program", "daybreak_red", "x"))
    assert ["--sandbox workspace-write" in said[0], "is not sent" in said[1]] == [True, True]


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (("--uncommitted",), UncommittedChangesReviewTarget()),
        (("--base", "main"), BaseBranchReviewTarget(branch="main")),
        (("--commit", "abc", "--title", "Fix"), CommitReviewTarget(sha="abc", title="Fix")),
        (("look at the errors",), CustomReviewTarget(instructions="look at the errors")),
    ],
)
def test_what_is_reviewed(words: tuple[str, ...], target: ReviewTarget, folder: Path) -> None:
    assert request("review", *words).review == target


def test_a_fork_may_be_kept_nowhere(folder: Path) -> None:
    asked = request("fork", "ID", "go on", "--ephemeral")
    assert (asked.fork, asked.resume, asked.prompt, asked.ephemeral) == (True, "ID", "go on", True)


@pytest.mark.parametrize("given", ["0", "-1", "soon", "nan", "1e12"])
def test_a_time_limit_is_a_number_of_seconds(given: str) -> None:
    with pytest.raises(click.BadParameter, match="no number of seconds"):
        request(f"--timeout={given}", "go on")
