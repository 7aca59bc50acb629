"""Every struct: against the JSON Schema that the real server generates of itself (0.166, stable), in every reader."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft7Validator
from msgspec import Struct
from msgspec.structs import fields

from schema_proof import definitions, experimental_requests
from treadle.protocol.app import (
    METHODS,
    NOTIFICATIONS,
    SERVER_REQUESTS,
    Variant,
    Wire,
    convert,
    convert_strictly,
    decode,
    encode,
    tolerant,
)
from unit.protocol.app_samples import samples, structs
from unit.protocol.app_traffic import DATA

STRUCTS = [struct for struct in structs() if issubclass(struct, Wire)]

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
    "AgentsUsage": "ours",
    "UsageCost": "ours",
    "ModelFailure": "ours",
    "TurnLimit": "ours",
    "RevertedFile": "ours",
    "RevertedFiles": "ours",
    "EnvironmentAddParams": "experimental",
    "EnvironmentAddResponse": "experimental",
    "EnvironmentInfoParams": "experimental",
    "EnvironmentInfoResponse": "experimental",
    "EnvironmentShell": "experimental",
    "EnvironmentStatusParams": "experimental",
    "EnvironmentStatusResponse": "experimental",
    "Empty": "the name of every `{}`",
    "NoParams": "the name of every `{}`",
}

THREAD_LIMITS = {"maxThreadTokens", "maxThreadCostUsd"}
OUR_MEMBERS = {
    "Thread": {"environments"},  # experimental
    "ThreadListParams": {"parentThreadId"},
    "ThreadTokenUsage": {"agents", "cost", "turn"},
    "TurnError": {"failure", "limit"},
    "WarningNotification": {"limit", "turnId"},
    "TurnStartParams": {"maxIterations", "maxOutputTokens", "maxTurnTokens", "maxTurnCostUsd"}
    # Experimental:
    | {"collaborationMode", "environments", "permissions", "runtimeWorkspaceRoots"},
    "CommandExecutionRequestApprovalParams": {"availableDecisions"},  # sent by the real server all the same
    "FuzzyFileSearchParams": {"environmentId"},
    "SkillsListParams": {"threadId"},
    "FuzzyFileSearchSessionStartParams": {"environmentId"},
    # Experimental:
    "CommandExecParams": {"permissionProfile"} | {"environmentId"},
    "ThreadForkParams": {"permissions", "runtimeWorkspaceRoots"} | THREAD_LIMITS,
    "ThreadForkResponse": {"activePermissionProfile", "runtimeWorkspaceRoots"},
    "ThreadResumeParams": {"permissions", "runtimeWorkspaceRoots"} | THREAD_LIMITS,
    "ThreadResumeResponse": {"activePermissionProfile", "runtimeWorkspaceRoots"},
    "ThreadStartParams": {"dynamicTools", "environments", "permissions", "runtimeWorkspaceRoots"} | THREAD_LIMITS,
    "ThreadStartResponse": {"activePermissionProfile", "runtimeWorkspaceRoots"},
    "ThreadRevertParams": {"files", "preview"},
    "ThreadRevertResponse": {"files"},
}
# Members that are required in the schema or with us, and not in the other.
REQUIRED_ON_ONE_SIDE = {
    "ChatgptAccount": {"email"},
    "HookMetadata": {"handlerType"},  # not the same in each variant of the schema
    "McpServerElicitationRequestParams": {"message", "mode"},  # the same
    "Thread": {"projectId"},
    "TurnEnvironmentParams": {"cwd"},  # without one, ours says where it works
    "ItemCompletedNotification": {"completedAtMs"},  # an older server leaves it out
    "ItemStartedNotification": {"startedAtMs"},
}
# Where we know more words, by the place of the member.
OUR_WORDS: dict[str, tuple[str, ...]] = {
    "ReviewStartParams": ("$.delivery: 'detached' is not",),  # of an older server
    "TurnEnvironmentParams": ("$: 'cwd' is a required",),
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


def test_every_struct_has_the_helpers() -> None:
    assert len(STRUCTS) == len(structs()) > 250


def test_what_has_no_definition_is_listed() -> None:
    assert {struct.__name__ for struct in STRUCTS if definition_of(struct) is None} == NOT_IN_SCHEMA.keys()


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_a_struct_is_written_as_in_the_schema_and_read_in_every_way(struct: type[Wire]) -> None:
    definition = definition_of(struct)
    if definition is not None:  # no member is forgotten or misspelt
        tag = struct.__struct_config__.tag_field
        ours = {*struct.__struct_encode_fields__, *([tag] if tag else [])}
        assert ours - OUR_MEMBERS.get(struct.__name__, set()) == members_of(struct)
        required = required_by(definition, struct.__name__)
        if required is not None:
            ours = {*(field.encode_name for field in fields(struct) if field.required), *([tag] if tag else [])}
            assert ours ^ required == REQUIRED_ON_ONE_SIDE.get(struct.__name__, set())
    for number, sample in enumerate(samples(struct)):
        assert isinstance(sample, Wire)
        raw = encode(sample)
        value = json.loads(raw)
        if definition is not None:
            our_words = OUR_WORDS.get(struct.__name__, ())
            assert [error for error in check(definition, value) if not error.startswith(our_words)] == [], sample
        check_reading(sample, raw, value)
        check_dumps(sample, value, full=number == 1)
        if isinstance(sample, Variant):
            check_tag(sample)


def check_reading(sample: Wire, raw: bytes, value: Any) -> None:
    """Reading at once, from plain values, and member by member give the same."""
    struct = type(sample)
    at_once, by_members = decode(raw, struct), tolerant.read(value, struct)
    assert by_members == at_once == convert_strictly(value, struct) == convert(value, struct) == sample
    assert type(by_members) is type(at_once) is struct
    assert repr(by_members) == repr(at_once)
    assert encode(by_members) == encode(at_once)


def check_dumps(sample: Wire, value: Any, *, full: bool) -> None:
    """`model_dump` and `model_validate` are inverse, and a full dump has what the wire has."""
    model, dumped = type(sample), sample.model_dump(by_alias=True)
    assert model.model_validate(dumped) == sample
    assert model.model_validate(sample.model_dump(by_alias=True, mode="json", exclude_none=False)) == sample
    assert model.model_validate(json.loads(sample.model_dump_json(by_alias=True))) == sample
    assert model.model_validate(sample) is sample
    if full:
        assert {name: member for name, member in dumped.items() if name in value} == value


def check_tag(sample: Variant) -> None:
    """A tag may be given and must be right."""
    model, members = type(sample), {name: getattr(sample, name) for name in sample.__struct_fields__}
    assert model(type=sample.type, **members) == sample
    with pytest.raises(ValueError, match=f"`type` of {model.__name__} is always '{sample.type}', not 'wrong'"):
        model(type="wrong", **members)


def members_of(struct: type[Struct]) -> set[str]:
    name = str(definition_of(struct))
    definition = definitions()[name]
    parts = [definition]
    for variant in (*definition.get("oneOf", ()), *definition.get("anyOf", ())):
        if name == struct.__name__ or variant.get("title", "").replace("v2::", "") == struct.__name__:
            parts += [variant, *variant.get("oneOf", ()), *variant.get("anyOf", ())]
    return {member for part in parts for member in part.get("properties", ())}


def required_by(definition: str, name: str) -> set[str] | None:
    """The members that the schema requires; None where that depends on others."""
    schema = definitions()[definition]
    if definition == name and "properties" in schema:
        return set(schema.get("required", ()))
    variants = (*schema.get("oneOf", ()), *schema.get("anyOf", ()))
    found = [variant for variant in variants if variant.get("title", "").replace("v2::", "") == name]
    return set(found[0].get("required", ())) if len(found) == 1 else None


# Experimental, or of an older server.
EXTRA_METHODS = {
    "collaborationMode/list",
    "environment/add",
    "environment/info",
    "environment/status",
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
