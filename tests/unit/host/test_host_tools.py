"""The host's tools, as a model sees and calls them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from treadle.client import ToolCallError, tools_by_name
from treadle.host import MemoryStore, Refused, SkillStore
from treadle.host.host_tools import host_tools


def nothing(query: str, limit: int) -> Sequence[object]:
    return []


def test_there_is_a_tool_for_what_is_there(tmp_path: Path) -> None:
    memory, skills = MemoryStore(tmp_path / "memory"), SkillStore(tmp_path / "skills")
    assert host_tools() == {}
    assert list(host_tools(memory=memory)) == ["memory"]
    every = host_tools(memory=memory, skills=skills, search=nothing)
    assert list(every) == ["memory", "skills_list", "skill_view", "skill_manage", "session_search"]
    # None of them is called like a tool that an agent has already.
    assert tools_by_name(every.values()) == every
    assert not list(tmp_path.iterdir())


def test_every_parameter_is_described(tmp_path: Path) -> None:
    tools = host_tools(memory=MemoryStore(tmp_path), skills=SkillStore(tmp_path), search=nothing)
    for tool in tools.values():
        assert len(tool.description) > 50
        for name, schema in tool.input_schema["properties"].items():
            assert schema.get("description"), f"{tool.name}.{name}"


def test_a_search_gives_what_was_found() -> None:
    asked: list[tuple[str, int]] = []

    def search(query: str, limit: int) -> Sequence[object]:
        asked.append((query, limit))
        return [{"role": "user", "text": "we use Java 21"}]

    tool = host_tools(search=search)["session_search"]
    (content,) = tool.content(tool.call({"query": "java"}))
    assert content.text == '[{"role":"user","text":"we use Java 21"}]'  # type: ignore[union-attr]
    tool.call({"query": "java", "limit": 20})
    assert asked == [("java", 5), ("java", 20)]
    for wrong in ({"query": " "}, {"query": "x", "limit": 0}, {"query": "x", "limit": 21}, {}):
        with pytest.raises(ToolCallError):
            tool.call(wrong)
    assert len(asked) == 2


def test_a_store_that_fails_is_told_to_the_model() -> None:
    def search(query: str, limit: int) -> Sequence[object]:
        raise Refused("unreadable", "the disk is gone")

    with pytest.raises(ToolCallError, match="the disk is gone"):
        host_tools(search=search)["session_search"].call({"query": "x"})


def test_they_may_be_called_at_once_from_many_threads(tmp_path: Path) -> None:
    tools = host_tools(memory=MemoryStore(tmp_path / "memory"), skills=SkillStore(tmp_path / "skills"))

    def work(number: int) -> None:
        tools["memory"].call({"target": "memory", "action": "add", "content": f"fact {number}"})
        document = f"---\nname: s{number}\ndescription: number {number}\n---\nbody"
        tools["skill_manage"].call({"action": "create", "name": f"s{number}", "content": document})
        assert f"number {number}" in tools["skill_view"].call({"name": f"s{number}"})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(16)))
    assert len(MemoryStore(tmp_path / "memory").entries()) == 16
    assert len(tools["skills_list"].call({}).split("\n")) == 16
