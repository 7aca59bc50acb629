"""The helpers that code written for the official SDK calls, what is sent and left out, and what is not shown."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import msgspec
import pytest
from msgspec import UNSET

from treadle.protocol.app import (
    METHODS,
    ApiKeyLoginAccountParams,
    ChatgptAuthTokensLoginAccountParams,
    CodexErrorInfo,
    CommandExecParams,
    CommandExecutionThreadItem,
    ConfigValueWriteParams,
    FeedbackSaveParams,
    McpServerElicitationRequestResponse,
    PlanThreadItem,
    TextUserInput,
    ThreadItem,
    ThreadListParams,
    ThreadMetadataGitInfoUpdateParams,
    ThreadStartParams,
    ToolRequestUserInputAnswer,
    Turn,
    TurnStartParams,
    TurnStatus,
    UnknownItem,
    Wire,
    convert,
    encode,
)
from unit.protocol.app_samples import structs

MODELS = [struct for struct in structs() if issubclass(struct, Wire)]


def test_a_class_tells_its_members() -> None:
    members = ThreadListParams.model_fields
    assert list(members) == list(ThreadListParams.__struct_fields__)
    assert members["search_term"].encode_name == "searchTerm"
    assert TextUserInput(text="x").model_fields.keys() == TextUserInput.model_fields.keys()


def test_dump_with_the_names_of_python() -> None:
    item = CommandExecutionThreadItem(id="c", command="ls", command_actions=(), cwd="/", status="inProgress")
    turn = Turn(id="u", status="inProgress", items=(item,))
    dumped = turn.model_dump()
    assert dumped["items_view"] == "full"
    assert dumped["items"][0]["type"] == "commandExecution"
    assert dumped["items"][0]["exit_code"] is None
    assert "exit_code" not in turn.model_dump(exclude_none=True)["items"][0]
    assert json.loads(turn.model_dump_json()) == dumped


def test_a_dump_without_none_leaves_out_params_at_their_default() -> None:
    given = {"classification": "bug", "savePath": "/p"}
    params = FeedbackSaveParams.model_validate(given)
    assert params.model_dump(by_alias=True, exclude_none=True) == given
    assert params.model_dump(by_alias=True)["includeLogs"] is False
    assert params.model_copy(update={"include_logs": True}).model_dump(exclude_none=True)["include_logs"] is True


def test_only_the_known_modes() -> None:
    with pytest.raises(ValueError, match="`yaml` is not known"):
        TextUserInput(text="a").model_dump(mode="yaml")


def test_members_of_unions_have_root_and_type() -> None:
    text = TextUserInput(text="a")
    assert text.root is text
    assert text.type == "text"


def test_unions_can_be_called_like_root_models() -> None:
    plan = PlanThreadItem(id="p", text="")
    assert ThreadItem(root=plan) is plan  # type: ignore[operator]
    assert ThreadItem(root=plan).root is plan  # type: ignore[operator]
    assert ThreadItem.model_validate(plan) is plan  # type: ignore[attr-defined]
    assert ThreadItem.model_validate({"type": "plan", "id": "p", "text": ""}) == plan  # type: ignore[attr-defined]
    assert ThreadItem.model_validate({"type": "hologram"}) == UnknownItem(type="hologram")  # type: ignore[attr-defined]
    assert CodexErrorInfo.model_validate("other") == "other"  # type: ignore[attr-defined]


def test_a_copy_with_other_values() -> None:
    turn = Turn(id="u", status="inProgress", items=())
    done = turn.model_copy(update={"status": TurnStatus.completed, "duration_ms": 5})
    assert done == Turn(id="u", status="completed", items=(), duration_ms=5)
    assert turn.status == "inProgress"
    assert turn.model_copy() == turn
    with pytest.raises(TypeError, match="colour"):
        turn.model_copy(update={"colour": "red"})


def test_a_server_says_null_and_a_client_says_nothing() -> None:
    turn = json.loads(encode(Turn(id="u", status="inProgress", items=())))
    assert turn["error"] is None
    assert turn["startedAt"] is None
    assert json.loads(encode(ThreadStartParams(model="m"))) == {"model": "m"}
    assert json.loads(encode(TurnStartParams(thread_id="t", input=()))) == {"threadId": "t", "input": []}


def test_null_and_absent_differ_where_null_clears() -> None:
    kept = ThreadMetadataGitInfoUpdateParams(branch=None)
    assert json.loads(encode(kept)) == {"branch": None}
    assert ThreadMetadataGitInfoUpdateParams.model_validate({"branch": None}).sha is UNSET


@pytest.mark.parametrize("limit", [-1, 2**32, "5", 1.5])
def test_numbers_out_of_range_are_refused(limit: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        ThreadListParams.model_validate({"limit": limit})


@pytest.mark.parametrize(
    "struct",
    [
        ApiKeyLoginAccountParams(api_key="hush"),
        ChatgptAuthTokensLoginAccountParams(access_token="hush", chatgpt_account_id="a"),
        CommandExecParams(command=("env",), env={"TOKEN": "hush"}),
        ToolRequestUserInputAnswer(answers=("hush",)),
        McpServerElicitationRequestResponse(action="accept", content={"password": "hush"}),
        ThreadStartParams(config={"model_providers.x.http_headers": {"Authorization": "hush"}}),
        ConfigValueWriteParams(key_path="k", merge_strategy="replace", value="hush"),
    ],
    ids=lambda struct: type(struct).__name__,
)
def test_secrets_are_sent_but_not_shown(struct: Wire) -> None:
    assert b"hush" in encode(struct)
    assert "hush" not in repr(struct)
    assert "hush" not in repr(struct.__rich_repr__())
    assert type(struct).__name__ in str(struct)


def test_no_member_with_a_secret_is_forgotten() -> None:
    secret = re.compile(r"api_key|access_key|access_token|secret|session_token|password|^env$|^config$")
    found = {
        (model.__name__, name)
        for model in MODELS
        for name in model.__struct_fields__
        if secret.search(name) and not name.startswith("is_") and name not in model._hidden
    }
    assert found == set()


def test_what_is_not_secret_is_shown() -> None:
    assert repr(CommandExecParams(command=("ls",), cwd="/x")).startswith("CommandExecParams(command=('ls',), cwd='/x',")


def test_login_tells_its_kinds_apart() -> None:
    login = convert({"type": "apiKey", "apiKey": "k"}, METHODS["account/login/start"].params)
    assert login == ApiKeyLoginAccountParams(api_key="k")


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    script = """
import sys, treadle.protocol.app as app
names = list(app.METHODS), "x" in app.METHODS, len(app.NOTIFICATIONS)
print(*sorted(name for name in sys.modules if name.startswith("treadle.protocol.app")))
app.METHODS["fs/copy"].params
print("treadle.protocol.app.machine_methods" in sys.modules, "treadle.protocol.app.items" in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60).stdout
    loaded, after = out.splitlines()
    parts = ("", ".base", ".methods")
    assert loaded.split() == [f"treadle.protocol.app{part}" for part in parts]
    assert after == "True False"
