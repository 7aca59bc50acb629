"""The structs against the JSON Schema that the real server generates of itself (0.166, stable)."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft7Validator
from msgspec import Struct

from schema_proof import definitions, experimental_requests
from treadle.protocol.app import METHODS, NOTIFICATIONS, SERVER_REQUESTS, convert, encode
from unit.protocol.app_samples import samples, structs
from unit.protocol.app_traffic import DATA, Recorded, struct_of, traffic

STRUCTS = structs()

NOT_IN_SCHEMA = {
    "AcceptWithExecpolicyAmendmentDecision": "answers are not in the schema",
    "ApplyNetworkPolicyAmendmentDecision": "answers are not in the schema",
    "ChatgptAuthTokensRefreshResponse": "answers are not in the schema",
    "CommandExecutionRequestApprovalResponse": "answers are not in the schema",
    "DynamicToolCallResponse": "answers are not in the schema",
    "ExecpolicyAmendment": "answers are not in the schema",
    "FileChangeRequestApprovalResponse": "answers are not in the schema",
    "McpServerElicitationRequestResponse": "answers are not in the schema",
    "NetworkAmendment": "answers are not in the schema",
    "PermissionsRequestApprovalResponse": "answers are not in the schema",
    "ToolRequestUserInputAnswer": "answers are not in the schema",
    "ToolRequestUserInputResponse": "answers are not in the schema",
    "FuzzyFileSearchResponse": "version 1 results are not in the schema",
    "InitializeResponse": "version 1 results are not in the schema",
    "CollaborationModeListParams": "experimental",
    "CollaborationModeListResponse": "experimental",
    "ThreadSettingsUpdateParams": "experimental",
    "ThreadRollbackParams": "of an older server",
    "ThreadRollbackResponse": "of an older server",
    "ActiveTurnNotSteerable": "checked inside of its parent, as it has no name in the schema",
    "Granular": "checked inside of its parent, as it has no name in the schema",
    "HttpFailure": "checked inside of its parent, as it has no name in the schema",
    "SubAgentThreadSpawn": "checked inside of its parent, as it has no name in the schema",
    "UsageCost": "ours",
    "Empty": "the name of every `{}`",
    "NoParams": "the name of every `{}`",
}

OUR_MEMBERS = {
    "ThreadTokenUsage": {"cost"},
    "CommandExecutionRequestApprovalParams": {"availableDecisions"},  # sent by the real server all the same
    # Experimental:
    "CommandExecParams": {"permissionProfile"},
    "ThreadForkParams": {"permissions", "runtimeWorkspaceRoots"},
    "ThreadForkResponse": {"activePermissionProfile", "runtimeWorkspaceRoots"},
    "ThreadResumeParams": {"permissions", "runtimeWorkspaceRoots"},
    "ThreadResumeResponse": {"activePermissionProfile", "runtimeWorkspaceRoots"},
    "ThreadStartParams": {"dynamicTools", "environments", "permissions", "runtimeWorkspaceRoots"},
    "ThreadStartResponse": {"activePermissionProfile", "runtimeWorkspaceRoots"},
    "TurnStartParams": {"collaborationMode", "environments", "permissions", "runtimeWorkspaceRoots"},
}
# Where we know more words, by the place of the member.
OUR_WORDS: dict[str, tuple[str, ...]] = {
    "ReviewStartParams": ("$.delivery: 'detached' is not",),  # of an older server
}


@cache
def variants() -> dict[str, str]:
    """From the title of a variant to the definition of its union."""
    return {
        variant["title"].replace("v2::", ""): name
        for name, definition in definitions().items()
        for variant in (*definition.get("oneOf", ()), *definition.get("anyOf", ()))
        if "title" in variant
    }


def definition_of(struct: type[Struct]) -> str | None:
    name = struct.__name__
    return name if name in definitions() else variants().get(name)


def check(definition: str, value: object) -> list[str]:
    schema = {"$ref": f"#/definitions/{definition}", "definitions": definitions()}
    errors = Draft7Validator(schema).iter_errors(value)
    return [f"{error.json_path}: {error.message[:300]}" for error in errors]


IN_SCHEMA = [struct for struct in STRUCTS if definition_of(struct)]


def test_what_has_no_definition_is_listed() -> None:
    assert {struct.__name__ for struct in STRUCTS if definition_of(struct) is None} == NOT_IN_SCHEMA.keys()


@pytest.mark.parametrize("struct", IN_SCHEMA, ids=lambda struct: struct.__name__)
def test_what_we_say_is_valid(struct: type[Struct]) -> None:
    definition = definition_of(struct)
    assert definition is not None
    for sample in samples(struct):
        ours = OUR_WORDS.get(struct.__name__, ())
        found = [error for error in check(definition, json.loads(encode(sample))) if not error.startswith(ours)]
        assert found == [], sample


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_what_we_say_is_read_again(struct: type[Struct]) -> None:
    for sample in samples(struct):
        assert convert(json.loads(encode(sample)), struct) == sample


@pytest.mark.parametrize("struct", IN_SCHEMA, ids=lambda struct: struct.__name__)
def test_no_member_is_forgotten_or_misspelt(struct: type[Struct]) -> None:
    tag = struct.__struct_config__.tag_field
    ours = {*struct.__struct_encode_fields__, *([tag] if tag else [])}
    assert ours - OUR_MEMBERS.get(struct.__name__, set()) == members_of(struct)


def members_of(struct: type[Struct]) -> set[str]:
    name = str(definition_of(struct))
    definition = definitions()[name]
    parts = [definition]
    for variant in (*definition.get("oneOf", ()), *definition.get("anyOf", ())):
        if name == struct.__name__ or variant.get("title", "").replace("v2::", "") == struct.__name__:
            parts += [variant, *variant.get("oneOf", ()), *variant.get("anyOf", ())]
    return {member for part in parts for member in part.get("properties", ())}


# Experimental, or of an older server.
EXTRA_METHODS = {
    "collaborationMode/list",
    "thread/rollback",
    "thread/settings/update",
}
VENDOR = (
    *("account/gatewayOAuth", "account/rateLimitReset", "account/usage", "account/workspaceMessages"),
    *("account/sendAdd", "app/", "externalAgentConfig/import", "feedback/upload", "marketplace/", "windows"),
    *("plugin/install", "plugin/read", "plugin/reconcile", "plugin/s", "plugin/uninstall"),
    "thread/attachment",
)


def test_only_vendor_methods_are_left_out() -> None:
    schema = json.loads((DATA / "app_schema" / "ClientRequest.json").read_text())
    methods = {each["properties"]["method"]["enum"][0] for each in schema["oneOf"]}
    assert len(methods) == 106
    assert methods - set(METHODS) == {method for method in methods if method.startswith(VENDOR)} - {"plugin/installed"}


@pytest.mark.parametrize(
    ("file", "table"),
    [("ClientRequest", METHODS), ("ServerNotification", NOTIFICATIONS), ("ServerRequest", SERVER_REQUESTS)],
)
def test_methods_carry_the_structs_of_the_schema(file: str, table: Any) -> None:
    schema = json.loads((DATA / "app_schema" / f"{file}.json").read_text())
    params = {each["properties"]["method"]["enum"][0]: each["properties"]["params"] for each in schema["oneOf"]}
    if file == "ClientRequest":
        params = {**experimental_requests(), **params}
    extra = set(table) - params.keys()
    assert extra == (EXTRA_METHODS if file == "ClientRequest" else set())
    for method in set(table) - extra:
        struct = table[method].params if file != "ServerNotification" else table[method]
        if isinstance(struct, type) and struct.__name__ not in NOT_IN_SCHEMA:
            assert {"$ref": f"#/definitions/{struct.__name__}"} in (params[method], *params[method].get("anyOf", ()))


TOLD = [
    message
    for message in traffic()
    if message.kind in ("result", "notification", "asked")
    and message.method in {*METHODS, *NOTIFICATIONS, *SERVER_REQUESTS}
    and getattr(struct_of(message), "__name__", None) in definitions()
]


@pytest.mark.parametrize("message", TOLD, ids=lambda message: f"{message.where}-{message.method}")
def test_the_recording_is_valid_after_us(message: Recorded) -> None:
    struct = struct_of(message)
    assert check(struct.__name__, json.loads(encode(convert(message.value, struct)))) == []
