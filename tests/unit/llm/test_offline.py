"""The offline model, driven as an agent would: its calls are answered until it has nothing more to call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from treadle.llm import (
    Completed,
    Created,
    CustomToolCallItem,
    FunctionCallItem,
    ItemDone,
    ItemStarted,
    JsonObject,
    MessageItem,
    ModelRequest,
    TextDelta,
    play,
)

Json = dict[str, Any]
CUSTOM_PATCH: Json = {"type": "custom", "name": "apply_patch"}
FUNCTION_PATCH: Json = {"type": "function", "name": "apply_patch"}
EXEC: Json = {"type": "function", "name": "exec_command"}
PLAN: Json = {"type": "function", "name": "update_plan"}
ALL = [PLAN, EXEC, CUSTOM_PATCH]


def user(text: str) -> Json:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


class Machine:
    """A directory and the tools that work in it; `turn` is the loop of an agent."""

    def __init__(
        self, tools: list[Json], files: Mapping[str, str], *, parallel: bool = True, read_only: bool = False
    ) -> None:
        self.tools = tools
        self.read_only = read_only
        self.files = dict(files)
        self.parallel = parallel
        self.history: list[JsonObject] = []
        self.calls: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.most_at_once = 0

    def turn(self, text: str) -> str:
        self.history.append(user(text))
        for _ in range(20):
            items = self._ask()
            if isinstance(items[0], MessageItem):
                assert len(items) == 1
                return items[0].text
            self.most_at_once = max(self.most_at_once, len(items))
            for call in items:
                assert isinstance(call, FunctionCallItem | CustomToolCallItem)
                self._answer(call)
        raise AssertionError("it never ends")

    def _ask(self) -> list[MessageItem | FunctionCallItem | CustomToolCallItem]:
        request = ModelRequest(model="offline", input=self.history, tools=self.tools, parallel_tool_calls=self.parallel)
        events = list(play(request))
        assert events == list(play(request)), "the same request gets the same answer"
        items = [event.item for event in events if isinstance(event, ItemDone)]
        self.ids += [item.id for item in items]
        self.history += [item.raw for item in items]
        assert all(isinstance(item, MessageItem | FunctionCallItem | CustomToolCallItem) for item in items)
        return [item for item in items if isinstance(item, MessageItem | FunctionCallItem | CustomToolCallItem)]

    def _answer(self, call: FunctionCallItem | CustomToolCallItem) -> None:
        free = isinstance(call, CustomToolCallItem)
        assert {"type": "custom" if free else "function", "name": call.name} in self.tools
        text = call.input if isinstance(call, CustomToolCallItem) else call.arguments
        self.calls.append((call.name, text))
        kind = "custom_tool_call_output" if free else "function_call_output"
        self.history.append({"type": kind, "call_id": call.call_id, "output": self._run(call.name, text, free)})

    def _run(self, name: str, text: str, free: bool) -> str:
        if name == "update_plan":
            return "Plan updated"
        if name == "apply_patch":
            return self._patch(text if free else json.loads(text)["input"])
        command, _, argument = json.loads(text)["cmd"].partition(" ")
        shown = "\n".join(sorted(self.files)) if command == "ls" else self.files.get(argument, "no such file")
        return f"Wall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n{shown}\n"

    def _patch(self, patch: str) -> str:
        begin, head, *lines, end = patch.splitlines()
        assert (begin, end) == ("*** Begin Patch", "*** End Patch")
        verb, _, name = head.removeprefix("*** ").partition(" File: ")
        if self.read_only:
            return "patch rejected: read-only"
        if verb == "Update":
            _, old, new = lines
            assert old[1:] in self.files[name].splitlines()
            self.files[name] = self.files[name].replace(old[1:], new[1:])
            return f"Success. M {name}"
        assert name not in self.files
        assert all(line.startswith("+") for line in lines)
        self.files[name] = "\n".join(line[1:] for line in lines)
        return f"Success. A {name}"


def test_a_whole_turn() -> None:
    machine = Machine(ALL, {"main.py": "", "setup.cfg": ""})
    answer = machine.turn("please fix the bug")
    work = ["exec_command", "apply_patch", "exec_command", "apply_patch"]
    assert [name for name, _ in machine.calls if name != "update_plan"] == work
    note = machine.files["treadle-offline-1.md"]
    assert "please fix the bug" in note
    assert "Files seen: 2" in note
    assert "offline model" in answer
    assert "$TREADLE_HOME/config.toml" in answer
    for seen in ("main.py", "setup.cfg", "Success. A treadle-offline-1.md", "Files seen: 2", "please fix the bug"):
        assert seen in answer
    assert "Signed: Treadle" in note
    assert "Wall time" not in answer
    assert machine.most_at_once == 2


def test_the_plan_is_ticked_off_step_by_step() -> None:
    machine = Machine(ALL, {})
    machine.turn("go")
    plans = [json.loads(text)["plan"] for name, text in machine.calls if name == "update_plan"]
    assert [[step["status"] for step in plan].count("completed") for plan in plans] == [0, 1, 2, 3, 4]
    assert len({tuple(step["step"] for step in plan) for plan in plans}) == 1


def test_the_tour_ends_where_the_note_cannot_be_written() -> None:
    machine = Machine(ALL, {"main.py": ""}, read_only=True)
    answer = machine.turn("go")
    assert [name for name, _ in machine.calls][-1] == "apply_patch"
    assert "`apply_patch`: patch rejected: read-only" in answer
    assert len(machine.calls) == 4


def test_one_call_at_a_time_when_that_is_asked() -> None:
    machine = Machine(ALL, {}, parallel=False)
    machine.turn("go")
    assert machine.most_at_once == 1
    assert len(machine.calls) == 9


def test_the_plan_names_only_what_will_be_done() -> None:
    machine = Machine([PLAN, EXEC], {})
    machine.turn("go")
    (name, arguments), *_ = machine.calls
    assert name == "update_plan"
    assert json.loads(arguments)["plan"] == [{"step": "See which files are here", "status": "in_progress"}]


def test_every_turn_has_a_note_of_its_own() -> None:
    machine = Machine(ALL, {"treadle-offline-1.md": "of another thread"})
    machine.turn("one")
    machine.turn("two")
    assert sorted(machine.files) == [f"treadle-offline-{n}.md" for n in (1, 2, 3)]
    assert machine.files["treadle-offline-1.md"] == "of another thread"
    assert len(set(machine.ids)) == len(machine.ids)


TOOLS = st.lists(
    st.sampled_from([PLAN, EXEC, {"type": "web_search"}, {"type": "function", "name": "other"}]), max_size=4
)
PATCHES = st.sampled_from([[], [CUSTOM_PATCH], [FUNCTION_PATCH]])
NAMES = st.sampled_from(["a.py", "b c", "treadle-offline-1.md", "treadle-offline-2.md"])


@given(TOOLS, PATCHES, st.sets(NAMES), st.booleans(), st.lists(st.text(), min_size=1, max_size=3))
def test_with_any_tools_and_words_a_turn_ends(
    tools: list[Json], patches: list[Json], files: set[str], parallel: bool, words: list[str]
) -> None:
    machine = Machine([*tools, *patches], dict.fromkeys(files, ""), parallel=parallel)
    for word in words:
        assert "$TREADLE_HOME/config.toml" in machine.turn(word)
    assert len(set(machine.ids)) == len(machine.ids)
    assert set(machine.files) >= files
    assert len(machine.files) == len(files) + (len(words) if patches and EXEC in tools else 0)


def test_text_comes_in_pieces() -> None:
    events = list(play(ModelRequest(model="m", input=[user("hi")])))
    assert isinstance(events[0], Created)
    assert isinstance(events[1], ItemStarted)
    done = events[-2]
    assert isinstance(done, ItemDone)
    assert isinstance(done.item, MessageItem)
    deltas = [event for event in events if isinstance(event, TextDelta)]
    assert len(deltas) > 5
    assert "".join(delta.delta for delta in deltas) == done.item.text
    last = events[-1]
    assert isinstance(last, Completed)
    assert last.usage is not None
    assert last.usage.total_tokens == last.usage.input_tokens + last.usage.output_tokens > 0


def test_threads_have_different_ids() -> None:
    made = [next(iter(play(ModelRequest(model="m", input=[user("hi")], prompt_cache_key=key)))) for key in ("a", "b")]
    assert made[0] != made[1]


@given(
    st.lists(st.dictionaries(st.sampled_from(["type", "role", "content", "call_id", "output"]), st.text() | st.none()))
)
def test_strange_items_are_not_seen(items: list[Json]) -> None:
    events = list(play(ModelRequest(model="m", input=[Raw(json.dumps(item).encode()) for item in items], tools=[])))
    assert isinstance(events[-1], Completed)


def test_outputs_in_parts() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "exec_command", "arguments": '{"cmd": "ls -1"}'}
    parts = [{"type": "input_text", "text": "x.py"}, {"type": "input_image", "image_url": "data:"}]
    items = [user("hi"), call, {"type": "function_call_output", "call_id": "c", "output": parts}]
    events = list(play(ModelRequest(model="m", input=items, tools=[])))
    assert "x.py" in "".join(event.delta for event in events if isinstance(event, TextDelta))


def test_an_answer_in_the_form_that_is_asked_for() -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    events = list(play(ModelRequest(model="m", input=[user("hi")], output_schema=schema)))
    assert json.loads("".join(event.delta for event in events if isinstance(event, TextDelta))) == {"ok": False}


@pytest.mark.parametrize("announced", ["", "User prompt:\n"])
def test_who_asks_for_a_form_gets_the_answer_at_once_and_nothing_is_run(announced: str) -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string", "maxLength": 36}}, "required": ["title"]}
    asked = f"Write a title of at most 36 characters.\n\n{announced}rm -rf the old build folder and then make a new one"
    events = list(play(ModelRequest(model="m", input=[user(asked)], tools=ALL, output_schema=schema)))
    (item,) = [event.item for event in events if isinstance(event, ItemDone)]
    assert isinstance(item, MessageItem)
    assert json.loads(item.text) == {"title": "rm -rf the old build folder and then"}


def test_who_is_told_to_plan_looks_and_proposes() -> None:
    machine = Machine([EXEC], {"main.py": ""})  # what changes files is not offered then
    told = "Put the plan between <proposed_plan> and </proposed_plan>."
    machine.history.append({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": told}]})
    answer = machine.turn("mend the roof")
    assert [json.loads(text)["cmd"] for _, text in machine.calls] == ["ls -1"]
    assert list(machine.files) == ["main.py"]
    message, _, plan = answer.partition("\n<proposed_plan>\n")
    assert "mend the roof" in message
    assert plan.endswith("\n</proposed_plan>")
