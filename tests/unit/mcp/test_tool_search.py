"""The search for tools that a model is not told of."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from treadle.mcp import (
    SearchArguments,
    ToolIndex,
    ToolNames,
    found_specs,
    plain_answer,
    search_spec,
    too_many,
)
from unit.mcp.offered import DATA, offered_tool

RECORDED = json.loads((DATA / "tool_search.json").read_text())
TOOLS = [offered_tool(tool["name"], tool["description"]) for tool in RECORDED["tools"]]


def test_the_same_kind_of_tools_is_found_as_by_the_real_program() -> None:
    found = ToolIndex({"probe": TOOLS}).search(RECORDED["query"], RECORDED["limit"])
    (expected,) = RECORDED["answer"]["tools"]
    # All of a topic are as good; which of them come first is chance there, and the order of the server here.
    assert {tool["description"].rpartition(" ")[2] for tool in expected["tools"]} == {"topic3"}
    assert [each.tool.name for each in found] == ["bulk_003", "bulk_010", "bulk_017"]


def test_the_tool_is_described_as_the_real_program_does() -> None:
    made = json.loads(bytes(search_spec({"probe": "Use the probe tools wisely."})))
    recorded = RECORDED["spec"]
    others = "- Multi-agent tools: Spawn and manage sub-agents.\n"
    assert made == {
        "type": "function",  # which every model knows
        "name": "tool_search",
        "description": recorded["description"].replace(others, ""),
        "strict": False,
        "parameters": recorded["parameters"],
    }


def test_what_servers_say_of_themselves_cannot_fill_a_request() -> None:
    made = json.loads(bytes(search_spec({"a": None, "b": "said\n" * 500})))
    assert "- a\n- b: said said" in made["description"]
    assert len(made["description"]) < 1200


def test_what_was_found_is_offered_in_the_same_order_whenever_it_was_found() -> None:
    tools = {"a": [offered_tool("x", "one word"), offered_tool("w", "one word")], "b": [offered_tool("y", "one word")]}
    names = ToolNames({server: [tool.name for tool in offered] for server, offered in tools.items()})
    found = ToolIndex(tools).search("word")
    specs = [[bytes(spec) for spec in found_specs(names, order, {})] for order in (found, found[::-1])]
    assert specs[0] == specs[1]
    assert [[tool["name"] for tool in json.loads(spec)["tools"]] for spec in specs[0]] == [["w", "x"], ["y"]]


def test_names_descriptions_and_servers_are_searched() -> None:
    index = ToolIndex(
        {
            "git_hub": [
                offered_tool("createPullRequest", "Opens one"),
                offered_tool("list_issues", "What is to be done"),
            ],
            "weather": [offered_tool("forecast", "Will it rain, in any city?")],
        }
    )
    for query, expected in [
        ("pull requests", "createPullRequest"),
        ("rain in cities city", "forecast"),
        ("github issue", "list_issues"),
        ("hub open one", "createPullRequest"),
    ]:
        assert index.search(query)[0].tool.name == expected, query
    assert index.search("database") == []
    assert index.search("") == []


def test_a_word_of_the_name_counts_more() -> None:
    tools = [offered_tool("read", "a file, deletes nothing"), offered_tool("delete", "removes a file")]
    assert ToolIndex({"s": tools}).search("delete")[0].tool.name == "delete"


def test_what_was_found_is_called_by_the_name_that_the_answer_gives() -> None:
    names = ToolNames({"s": ["a.b"]})
    found = ToolIndex({"s": [offered_tool("a.b", "does it")]}).search("does")
    assert plain_answer(names, found) == "You can call these tools now:\n- mcp__s__a_b: does it"
    assert names.find(None, "mcp__s__a_b") == ("s", "a.b")
    assert plain_answer(names, []) == "No tool matches. Try other words."


@pytest.mark.parametrize(("limit", "count"), [(3.0, 3), (0.0, 1), (-5.0, 1), (1e300, 50), (float("nan"), 8)])
def test_a_limit_is_a_number_of_tools(limit: float, count: int) -> None:
    assert SearchArguments("x", limit).count == count


def test_too_many_is_a_matter_of_the_window() -> None:
    specs = [Raw(b"x" * 4000)] * 10  # 10,000 tokens
    assert not too_many(specs, 100_000)
    assert too_many(specs, 99_000)


@given(
    st.text(max_size=40),
    st.integers(-5, 100),
    st.lists(st.tuples(st.text(max_size=20), st.text(max_size=60)), max_size=8),
)
def test_any_query_finds_at_most_what_was_asked_for(query: str, limit: int, said: list[tuple[str, str]]) -> None:
    tools = [offered_tool(name, description) for name, description in said]
    found = ToolIndex({"s": tools}).search(query, limit)
    assert len(found) <= max(1, min(limit, 50))
    assert all(each.tool in tools for each in found)
