"""What the recorded server said of skills, to clients and to the model, and what ours says of the same files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from interop.replay.recording import DATA, load
from interop.replay.scenario import load_scenarios
from system.agent.scene import Scene, scene

pytestmark = [pytest.mark.anyio, pytest.mark.responses_wire]

SCENARIO = "skills_01_list_and_use"
# The real one takes broken YAML for a name.
BROKEN = "bad3/SKILL.md"


def live(stage: Scene, user: Path, text: str) -> str:
    """A recorded text with our folders in it, and with the letters that were counted."""
    for token, path in (("<home>", stage.harness.home), ("<workspace>", stage.workspace), ("<outside>/user", user)):
        text = text.replace(token, str(path))
    return re.sub(r"<d\*(\d+)>", lambda match: "d" * int(match[1]), text)


def entries(text: str) -> list[tuple[str, str]]:
    """The lines of a list, with whole paths: which root has which short name is up to the server."""
    roots = dict(re.findall(r"- `(r\d+)` = `(.*)`", text))
    found = re.findall(r"^- (.*) \(file: (r\d+)/(.*)\)$", text, re.MULTILINE)
    return [(entry, f"{roots[root]}/{path}") for entry, root, path in found]


def plain(value: Any) -> Any:
    """Without what is null."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if each is not None}
    return [plain(each) for each in value] if isinstance(value, list) else value


def skill_texts(requests: list[Any]) -> list[list[str]]:
    """What each request has of skills that the one before it had not."""
    seen: list[str] = []
    found = []
    for request in requests:
        texts = [*request.input_texts("developer"), *request.input_texts("user")]
        mine = [text for text in texts if text.startswith(("<skills_instructions>", "<skill>"))]
        found.append([text for text in mine if text not in seen])
        seen = mine
    return found


@pytest.mark.this_machine
async def test_the_same_files_are_the_same_skills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = tmp_path / "user"
    monkeypatch.setenv("HOME", str(user))
    recorded = load(SCENARIO)
    listed = next(line.message["result"] for line in recorded if line.message.get("id") == 2 and not line.from_client)
    inputs = [line.params["input"] for line in recorded if line.method == "turn/start"]
    async with scene(tmp_path, settings={"sandbox_mode": "danger-full-access"}) as stage:
        for name, content in load_scenarios()[SCENARIO].files.items():
            place = name.replace("../user/.codex", str(stage.harness.home)).replace("../user", str(user))
            (stage.workspace / place).parent.mkdir(parents=True, exist_ok=True)
            (stage.workspace / place).write_text(str(content))

        def ours(value: Any) -> Any:
            return json.loads(live(stage, user, json.dumps(value)))

        off = f"{stage.workspace}/.agents/skills/disabled-one/SKILL.md"
        await stage.client.request("skills/config/write", {"path": off, "enabled": False})

        # What clients get.
        folders = [str(stage.workspace), str(stage.workspace / "sub")]
        answer = await stage.client.request("skills/list", {"cwds": folders})
        for entry, expected in zip(answer["data"], ours(listed)["data"], strict=True):
            skills = [skill for skill in plain(expected["skills"]) if not skill["path"].endswith(BROKEN)]
            assert plain(entry["skills"]) == skills
            errors = [error for error in entry["errors"] if not error["path"].endswith(BROKEN)]
            assert errors == expected["errors"]
            assert len(entry["errors"]) == len(errors) + 1

        # What the model gets.
        thread = await stage.start()
        for given in inputs:
            stage.model.enqueue_assistant_message("a")
            await stage.run(thread, input=ours(given))
        expected_texts = ours(json.loads((DATA / "skills_01_model_texts.json").read_text()))
        first, mentions, items = skill_texts(stage.model.requests())
        assert mentions == expected_texts[1]
        (used, unread) = items
        assert [used] == expected_texts[2]
        assert "could not be read" in unread, "the real one drops it"
        (text,), (expected_text,) = first, expected_texts[0]
        assert text.partition("### Skill roots")[0] == expected_text.partition("### Skill roots")[0]
        assert entries(text) == [entry for entry in entries(expected_text) if not entry[1].endswith(BROKEN)]
