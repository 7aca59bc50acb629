"""The specs of the tools: valid, stable, and in step with what is read."""

from __future__ import annotations

from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec import Raw, Struct

from treadle.protocol.app.dynamic_tools import (
    FunctionDynamicToolNamespaceTool,
    FunctionDynamicToolSpec,
    NamespaceDynamicToolSpec,
)
from treadle.tools import tool_arguments as arguments
from treadle.tools.specs import APPLY_PATCH_FREEFORM, PATCH_GRAMMAR, dynamic_spec, tool_specs

READ_BY: dict[str, type[Struct]] = {
    "exec_command": arguments.ExecCommandArguments,
    "write_stdin": arguments.WriteStdinArguments,
    "apply_patch": arguments.ApplyPatchArguments,
    "update_plan": arguments.UpdatePlanArguments,
    "view_image": arguments.ViewImageArguments,
    "get_goal": arguments.GetGoalArguments,
    "create_goal": arguments.CreateGoalArguments,
    "update_goal": arguments.UpdateGoalArguments,
}


def _plain(raw: Raw) -> dict[str, Any]:
    value = msgspec.json.decode(raw)
    assert isinstance(value, dict)
    return value


def _names(specs: tuple[Raw, ...]) -> list[str]:
    return [_plain(spec)["name"] for spec in specs]


def test_which_tools_there_are() -> None:
    assert _names(tool_specs()) == list(READ_BY)
    assert _names(tool_specs(plan=False, images=False, goals=False)) == ["exec_command", "write_stdin", "apply_patch"]


@pytest.mark.parametrize("spec", [*map(_plain, tool_specs())], ids=list(READ_BY))
def test_specs_name_exactly_what_is_read(spec: dict[str, Any]) -> None:
    wanted = READ_BY[spec["name"]]
    assert (spec["type"], spec["strict"]) == ("function", False)
    jsonschema.Draft202012Validator.check_schema(spec["parameters"])
    assert set(spec["parameters"]["properties"]) == set(wanted.__struct_fields__)
    required = {field.name for field in msgspec.structs.fields(wanted) if field.required}
    assert set(spec["parameters"]["required"]) == required
    for described in (spec, *spec["parameters"]["properties"].values()):
        assert described["description"]


def test_words_of_specs_are_read() -> None:
    for raw in tool_specs():
        spec = _plain(raw)
        for name, member in spec["parameters"]["properties"].items():
            for word in member.get("enum", ()):
                required = {"cmd": "x"} if spec["name"] == "exec_command" else {}
                given = msgspec.json.encode({**required, name: word}).decode()
                assert getattr(arguments.parse(given, READ_BY[spec["name"]]), name) == word


def test_a_patch_as_free_text() -> None:
    assert tool_specs(freeform_patch=True)[2] is APPLY_PATCH_FREEFORM
    spec = _plain(APPLY_PATCH_FREEFORM)
    assert (spec["type"], spec["name"]) == ("custom", "apply_patch")
    assert spec["format"] == {"type": "grammar", "syntax": "lark", "definition": PATCH_GRAMMAR}


def test_specs_are_made_once() -> None:
    assert all(one is other for one, other in zip(tool_specs(), tool_specs(), strict=True))


SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}


def test_tools_of_a_client() -> None:
    tool = FunctionDynamicToolSpec(name="lookup", description="d", input_schema=SCHEMA)
    assert _plain(tool_specs(dynamic=[tool])[-1]) == {
        "type": "function",
        "name": "lookup",
        "description": "d",
        "strict": False,
        "parameters": SCHEMA,
    }


def test_a_namespace_of_a_client() -> None:
    tool = FunctionDynamicToolNamespaceTool(name="lookup", description="d", input_schema=SCHEMA)
    spec = _plain(dynamic_spec(NamespaceDynamicToolSpec(name="crm", description="customers", tools=(tool,))))
    assert (spec["type"], spec["name"], spec["description"]) == ("namespace", "crm", "customers")
    assert [(inner["type"], inner["name"], inner["parameters"]) for inner in spec["tools"]] == [
        ("function", "lookup", SCHEMA)
    ]
