"""The workflows of docs/ci.md: their `run:` steps, in their order, with a model of ours and a `gh` that writes down its
words. What brings the checkout, Python and the package is GitHub's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from doc_blocks import BLOCKS
from kit.warm_python import write_treadle
from treadle.testing import AppServerHarness

KEY: Final = "sk-planted-0123456789abcdef"
FILLED: Final = {
    "secrets.OPENAI_API_KEY": KEY,
    "github.token": "gh-token",
    "github.base_ref": "main",
    "github.event.number": "7",
}
_STEP: Final = re.compile(r"^      - ", re.MULTILINE)
_VARIABLE: Final = re.compile(r"^          (\w+): \$\{\{ (.+) \}\}$", re.MULTILINE)


class Step(NamedTuple):
    name: str
    script: str
    env: dict[str, str]
    always: bool


def steps(file: str) -> list[Step]:
    """The steps with a script, read as far as these files need it: two spaces, and `|` for several lines."""
    [block] = [block for block in BLOCKS if block.language == "yaml" and block.attributes.get("file") == file]
    found = []
    for text in _STEP.split(block.text)[1:]:
        run = re.search(r"^        run: (?:\|\n((?:          .*\n|\n)+)|(.+))", text, re.MULTILINE)
        if run is not None:
            script = re.sub(r"^          ", "", run[1] or run[2], flags=re.MULTILINE)
            assert "${{" not in script  # text of others would be code
            env = {name: FILLED[value] for name, value in _VARIABLE.findall(text)}
            found.append(Step(text.partition("\n")[0].removeprefix("name: "), script, env, "if: always()" in text))
    return found


class Runner:
    """A machine with the checkout of a branch, our program and `gh`."""

    def __init__(self, harness: AppServerHarness, tmp_path: Path) -> None:
        self.folder = harness.workspace
        self.programs = tmp_path / "bin"
        self.programs.mkdir()
        write_treadle(self.programs / "treadle")
        (self.programs / "python").symlink_to(sys.executable)
        (self.programs / "gh").write_text(
            f'#!/bin/sh\necho "$GH_TOKEN $*" >> {tmp_path}/gh.log\ncat review.md >> {tmp_path}/gh.log\n'
        )
        (self.programs / "gh").chmod(0o755)
        self.log = tmp_path / "gh.log"
        inherited = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        self.env = {
            **inherited,
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "TREADLE_HOME": str(harness.home),
            "CI": "true",
        }
        # The provider of the workflows, on this machine.
        url = harness.model.base_url
        (harness.home / "config.toml").write_text(f'[model_providers.openai]\nbase_url = "{url}"\n')
        git = ["git", "-C", str(self.folder), "-c", "user.name=me", "-c", "user.email=me@localhost"]
        for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"], ["branch", "-M", "change"]):
            subprocess.run([*git, *words], check=True)
        subprocess.run([*git, "update-ref", "refs/remotes/origin/main", "HEAD"], check=True)

    def run(self, step: Step) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.script],
            cwd=self.folder,
            env={**self.env, **step.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )


def test_a_pull_request_is_reviewed_and_commented(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        runner = Runner(harness, tmp_path)
        harness.model.enqueue_function_call("exec_command", {"cmd": "git merge-base HEAD origin/main; env"})
        harness.model.enqueue_assistant_message("Line 3 of parser.py forgets the empty file.")
        install, *others = steps("review.yml")
        assert install.script == "pip install treadle"
        for step in others:
            done = runner.run(step)
            assert done.returncode == 0, (step, done.stderr)
            assert KEY not in done.stdout + done.stderr
        asked, called = harness.model.requests()
        assert "merged into the branch 'origin/main'" in (asked.last_user_text or "")
        assert asked.header("authorization") == f"Bearer {KEY}"
        assert KEY not in called.body.decode()  # nor in the environment of the agent's commands
        assert "CI=true" in called.body.decode()
        assert runner.log.read_text() == (
            "gh-token pr comment 7 --body-file review.md --edit-last --create-if-none\n"
            "Line 3 of parser.py forgets the empty file."
        )
        listed = subprocess.run(["treadle", "threads", "list"], env=runner.env, capture_output=True, check=True)
        assert listed.stdout == b""  # nothing is kept


@pytest.mark.parametrize("green", [True, False])
def test_the_nightly_job_decides_by_the_answer_and_leaves_a_page(tmp_path: Path, green: bool) -> None:
    [schema] = [block for block in BLOCKS if block.document.name == "ci.md" and block.language == "json"]
    with AppServerHarness(tmp_path) as harness:
        runner = Runner(harness, tmp_path)
        (runner.folder / "verdict.json").write_text(schema.text)
        harness.model.enqueue_assistant_message(json.dumps({"green": green, "summary": "One test fails."}))
        codes: dict[str, int] = {}
        for step in steps("nightly.yml")[1:]:
            if step.always or not any(codes.values()):
                done = runner.run(step)
                codes[step.name] = done.returncode
                assert done.returncode == 0 or step.name == "decide", (step, done.stderr)
        assert codes == {"look": 0, "page": 0, "decide": 0 if green else 1}
        assert done.stdout == "One test fails.\n"
        events = [json.loads(line) for line in (runner.folder / "events.jsonl").read_text().splitlines()]
        assert events[-1]["type"] == "turn.completed"
        assert "One test fails." in (runner.folder / "thread.html").read_text()
        assert harness.model.single_request().json["text"]["format"]["schema"] == json.loads(schema.text)


def test_a_step_that_fails_fails_the_job(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        runner = Runner(harness, tmp_path)
        harness.model.enqueue_error(401, "no such key")
        [review] = [step for step in steps("review.yml") if step.name == "review"]
        done = runner.run(review)
        assert done.returncode == 1
        assert not (runner.folder / "review.md").exists()
