"""Automatic reviews on both servers, by the same words of the model: the client is told the same, and the same is done.

Each server has a folder and a model of its own. The one difference is on purpose: where there is no clear answer, the
real server declines, and ours asks the user. (How long a review may take cannot be set in this version of codex.)
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interop.peers import installed
from interop.programs import ROOT, codex_config
from kit.app_client import AppClient
from kit.app_program import server_on_pipes
from kit.wire_client import Json
from treadle.testing import MockModel, RecordedRequest, Reply, ToolCall, item_events, sse_reply, stream

pytestmark = pytest.mark.interop

PROGRAMS: dict[str, Callable[[], list[str]]] = {
    "real": lambda: [str(installed("codex")), "app-server"],
    "ours": lambda: [sys.executable, "-m", "treadle", "app-server"],
}
STARTED, COMPLETED = "item/autoApprovalReview/started", "item/autoApprovalReview/completed"
QUESTION = "item/commandExecution/requestApproval"
ALLOW = json.dumps({"risk_level": "low", "user_authorization": "high", "rationale": "asked for", "outcome": "allow"})
DENY = json.dumps({"risk_level": "high", "user_authorization": "low", "rationale": "too risky", "outcome": "deny"})
TOUCH = ToolCall(
    "exec_command", {"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "j"}
)
ADD = ToolCall("apply_patch", "*** Begin Patch\n*** Add File: made\n+x\n*** End Patch\n", custom=True)


class Seen(NamedTuple):
    """`told` are the messages about the action and its review, with what both servers choose themselves left out."""

    told: list[tuple[str, Any]]
    status: str
    made: bool
    reviews: int
    outputs: list[str]

    def statuses(self) -> list[str]:
        return [params["review"]["status"] for method, params in self.told if method == COMPLETED]


class Play:
    """The model: it makes the same call `calls` times, and reviews it with `answer`."""

    def __init__(self, call: ToolCall, answer: str, calls: int) -> None:
        self._call, self._answer = call, answer
        self._left = calls
        self._made = 0
        self.reviews = 0
        self.outputs: dict[str, str] = {}

    def __call__(self, request: RecordedRequest) -> Reply | str:
        if request.output_schema is not None:
            self.reviews += 1
            return self._answer
        self.outputs.update(request.tool_outputs)
        if not self._left:
            return "done"
        self._left -= 1
        self._made += 1
        item = self._call.item(f"call_{self._made}")
        return sse_reply(stream("resp", list(item_events(item, 0)), [item], None))


@contextmanager
def server(program: str, root: Path, base_url: str) -> Iterator[AppClient]:
    home, work = root / "home", root / "work"
    home.mkdir(parents=True)
    work.mkdir()
    (home / "config.toml").write_text(
        codex_config(base_url, "read-only", "on-request", top='approvals_reviewer = "auto_review"')
    )
    env = {"HOME": str(home), "CODEX_HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    with server_on_pipes(PROGRAMS[program](), cwd=work, env=env, log=root / "stderr", ours=False) as running:
        running.client.initialize()
        yield running.client


def played(
    program: str,
    tmp_path: Path,
    call: ToolCall,
    answer: str,
    *,
    calls: int = 1,
) -> Seen:
    root = tmp_path / program
    play = Play(call, answer, calls)
    with MockModel(on_empty=play) as model, server(program, root, model.base_url) as client:
        client.begin(client.start_thread(cwd=str(root / "work")))
        while "turn/completed" not in (message := client.receive()).get("method", ""):
            if "id" in message and "method" in message:
                client.answer(message, {"decision": "decline"})
        made = (root / "work" / "made").exists()
        status: str = message["params"]["turn"]["status"]
        return Seen(list(told(client.told, root)), status, made, play.reviews, list(play.outputs.values()))


def told(messages: Sequence[Json], root: Path) -> Iterator[tuple[str, Any]]:
    for message in messages:
        method, params = message["method"], json.loads(json.dumps(message["params"]).replace(str(root), "ROOT"))
        if method in (STARTED, COMPLETED):
            own = ("reviewId", "threadId", "turnId", "startedAtMs", "completedAtMs")
            yield method, {name: value for name, value in params.items() if name not in own}
        elif method == "guardianWarning":
            yield method, params["message"]
        elif method in ("item/started", "item/completed") and params["item"]["type"] in (
            "commandExecution",
            "fileChange",
        ):
            yield method, params["item"]["status"]
        elif method == QUESTION:
            yield method, None


@pytest.mark.parametrize(("answer", "made"), [(ALLOW, True), (DENY, False)], ids=["allow", "deny"])
def test_a_command_is_judged_alike(tmp_path: Path, answer: str, made: bool) -> None:
    real, ours = (played(program, tmp_path, TOUCH, answer) for program in PROGRAMS)
    assert ours.told == real.told
    assert (real.made, real.status, real.reviews) == (made, "completed", 1)
    assert (ours.made, ours.status, ours.reviews) == (made, "completed", 1)
    if not made:
        assert "too risky" in ours.outputs[0]
        assert "too risky" in real.outputs[0]


def test_a_patch_is_denied_alike(tmp_path: Path) -> None:
    real, ours = (played(program, tmp_path, ADD, DENY) for program in PROGRAMS)
    assert ours.told == real.told
    assert not real.made
    assert not ours.made


def test_without_a_clear_answer_nothing_is_done(tmp_path: Path) -> None:
    real, ours = (played(program, tmp_path, TOUCH, "Sure, go on!") for program in PROGRAMS)
    assert (real.made, real.reviews, real.statuses()) == (False, 3, ["denied"])
    assert (ours.made, ours.reviews, ours.statuses()) == (False, 3, ["aborted"])
    assert [(method, what) for method, what in ours.told if method == QUESTION] == [(QUESTION, None)]
    assert ours.told[-1] == real.told[-1] == ("item/completed", "declined")


def test_the_third_denial_ends_the_turn(tmp_path: Path) -> None:
    real, ours = (played(program, tmp_path, TOUCH, DENY, calls=5) for program in PROGRAMS)
    assert real.status == ours.status == "interrupted"
    assert real.reviews == ours.reviews == 3
    assert [method for method, _ in ours.told] == [method for method, _ in real.told]
    assert ours.told[:-1] == real.told[:-1]  # the last one says why, in our words
