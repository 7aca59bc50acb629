"""The specs of the tools: valid, stable, and in step with what is read."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec import Raw, Struct, structs

from told_tools import KNOWN, TOOLS, tool_specs
from treadle.agent import (
    PATCH_GRAMMAR,
    ApplyPatchArguments,
    ApplyPatchFreeform,
    CreateGoalArguments,
    ExecCommandArguments,
    GetGoalArguments,
    RequestUserInputArguments,
    Thread,
    UpdateGoalArguments,
    UpdatePlanArguments,
    ViewImageArguments,
    WriteStdinArguments,
    specifications,
)
from treadle.protocol.app import (
    DynamicToolSpec,
    FunctionDynamicToolNamespaceTool,
    FunctionDynamicToolSpec,
    NamespaceDynamicToolSpec,
)
from treadle.tools import dynamic_spec, parse_arguments
from unit.agent.bare_thread import bare_thread

READ_BY: dict[str, type[Struct]] = {
    "exec_command": ExecCommandArguments,
    "write_stdin": WriteStdinArguments,
    "apply_patch": ApplyPatchArguments,
    "update_plan": UpdatePlanArguments,
    "view_image": ViewImageArguments,
    "get_goal": GetGoalArguments,
    "create_goal": CreateGoalArguments,
    "update_goal": UpdateGoalArguments,
}
# Every byte of them is in every request: another hash is another prompt, and a cache that begins anew.
ALL_OF_THEM = {
    (False, False): "c6146ae48890",
    (False, True): "25fce0149168",
    (True, False): "4b21908f6288",
    (True, True): "5f585d4a1822",
}


def _plain(raw: Raw) -> dict[str, Any]:
    value = msgspec.json.decode(raw)
    assert isinstance(value, dict)
    return value


def _names(specs: tuple[Raw, ...]) -> list[str]:
    return [_plain(spec)["name"] for spec in specs]


def test_which_tools_there_are() -> None:
    assert _names(tool_specs()) == list(READ_BY)
    assert _names(tool_specs(images=False)) == [name for name in READ_BY if name != "view_image"]
    planning = ["request_user_input" if name == "update_plan" else name for name in READ_BY if name != "apply_patch"]
    assert _names(tool_specs(mode="plan")) == planning


@pytest.mark.parametrize(("freeform_patch", "images"), ALL_OF_THEM)
def test_what_is_told_changes_only_on_purpose(freeform_patch: bool, images: bool) -> None:
    told = b"\n".join(map(bytes, tool_specs(freeform_patch=freeform_patch, images=images)))
    assert sha256(told).hexdigest()[:12] == ALL_OF_THEM[freeform_patch, images]


@pytest.mark.parametrize("spec", [_plain(tool.spec) for tool in TOOLS if not tool.free_text], ids=lambda it: it["name"])
def test_specs_name_exactly_what_is_read(spec: dict[str, Any]) -> None:
    wanted = READ_BY.get(spec["name"], RequestUserInputArguments)
    assert (spec["type"], spec["strict"]) == ("function", False)
    jsonschema.Draft202012Validator.check_schema(spec["parameters"])
    # Only where there are several environments can one be named.
    assert set(spec["parameters"]["properties"]) == set(wanted.__struct_fields__) - {"environment_id"}
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
                assert getattr(parse_arguments(given, READ_BY[spec["name"]]), name) == word


def test_a_patch_as_free_text() -> None:
    assert tool_specs(freeform_patch=True)[2] is ApplyPatchFreeform.spec
    spec = _plain(ApplyPatchFreeform.spec)
    assert (spec["type"], spec["name"]) == ("custom", "apply_patch")
    assert spec["format"] == {"type": "grammar", "syntax": "lark", "definition": PATCH_GRAMMAR}


SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
LOOKUP = FunctionDynamicToolSpec(name="lookup", description="d", input_schema=SCHEMA)
NAMESPACE = NamespaceDynamicToolSpec(
    name="crm",
    description="customers",
    tools=(FunctionDynamicToolNamespaceTool(name="lookup", description="d", input_schema=SCHEMA),),
)


@pytest.mark.anyio
async def test_specs_are_made_once(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, _):
        _bring(thread, LOOKUP, NAMESPACE)
        told = specifications(thread)
        assert _known(told) == [*READ_BY, "lookup", "crm"]
        assert all(one is other for one, other in zip(told, specifications(thread), strict=True))
        _bring(thread, LOOKUP)
        assert _known(specifications(thread)) == [*READ_BY, "lookup"]


def _known(specs: tuple[Raw, ...]) -> list[str]:
    return [name for name in _names(specs) if name in (*KNOWN, "lookup", "crm")]


def _bring(thread: Thread, *tools: DynamicToolSpec) -> None:
    settings = structs.replace(thread.settings, dynamic_tools=tools)
    thread.state = structs.replace(thread.state, settings=settings)


def test_tools_of_a_client() -> None:
    assert _plain(dynamic_spec(LOOKUP)) == {
        "type": "function",
        "name": "lookup",
        "description": "d",
        "strict": False,
        "parameters": SCHEMA,
    }


def test_a_namespace_of_a_client() -> None:
    spec = _plain(dynamic_spec(NAMESPACE))
    assert (spec["type"], spec["name"], spec["description"]) == ("namespace", "crm", "customers")
    assert [(inner["type"], inner["name"], inner["parameters"]) for inner in spec["tools"]] == [
        ("function", "lookup", SCHEMA)
    ]
