"""Every message that our app-server sends in a test is held against the schema that the real server has of itself.

`SchemaProof.check` judges one message; each shape is judged once. `listen_in` hooks the ways out of a server in this
process; a client of a server in another process hands over what it receives with `heard`. What we have beyond the real
protocol is listed here by name, and nowhere else.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import pytest
from jsonschema import Draft7Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

Json: TypeAlias = dict[str, Any]

SCHEMA: Final = Path(__file__).parent / "data" / "app_schema"
ERROR_CODES: Final = frozenset({-32600, -32601, -32602, -32603, -32001})

# --- ours: what the real schema does not have -------------------------------------------------------------------------

OUR_NOTIFICATION_MEMBERS: Final = frozenset({"seq"})
# Results that the schema has no definition for: the members that there must be, each with its own check; one with `?`
# may be missing.
OUR_RESULTS: Final[Mapping[str, Mapping[str, str]]] = {
    "initialize": {
        "userAgent": "string",
        "codexHome": "string",
        "platformFamily": "string",
        "platformOs": "string",
        "extensions": "object",
    },
    "thread/events/list": {
        "data": "notifications",
        "firstSeq": "integer",
        "lastSeq": "integer",
        "hasMore": "boolean",
        "epoch": "string",
        "openItems": "items",
    },
    "thread/messages/search": {"data": "hits"},
    "mcpServer/prompt/list": {"data": "prompts", "nextCursor": "string|null"},
    "mcpServer/prompt/get": {"description": "string|null", "input": "inputs"},
    "thread/rollback": {"thread": "Thread"},  # of an older server
    "thread/settings/update": {},  # experimental
    "collaborationMode/list": {"data": "modes"},  # experimental
    "environment/add": {},  # experimental, as are the next two
    "environment/info": {"shell": "object", "cwd": "string|null"},
    "environment/status": {"status": "string", "error?": "string"},
    "environment/list": {"data": "environments"},
    "account/logout": {},
    "fuzzyFileSearch": {"files": "files"},  # of version 1
}
OUR_RESULT_MEMBERS: Final = {"thread/resume": {"seq": "integer"}}
# Where the definition has another name than the one that the params suggest.
RESULT_NAMES: Final = {
    "config/value/write": "ConfigWriteResponse",
    "config/batchWrite": "ConfigWriteResponse",
    "config/mcpServer/reload": "McpServerRefreshResponse",  # it has no params
    "configRequirements/read": "ConfigRequirementsReadResponse",
    "account/rateLimits/read": "GetAccountRateLimitsResponse",
}
# Methods that pass on the error of another server as it is.
OTHERS_ERRORS: Final = ("mcpServer/tool/call", "mcpServer/resource/read")

# --- the schema -------------------------------------------------------------------------------------------------------


@cache
def _file(name: str) -> Json:
    loaded: Json = json.loads((SCHEMA / f"{name}.json").read_text())
    return loaded


@cache
def definitions() -> Json:
    merged: Json = {}
    for name in ("app_server_v2.stable", "ClientRequest", "ServerRequest", "ServerNotification", *experimental()):
        merged = {**_file(name)["definitions"], **merged}
    return merged


@cache
def experimental() -> tuple[str, ...]:
    """Files with what is only in the experimental schema: `definitions`, and `requests` by their methods."""
    return tuple(sorted(path.stem for path in SCHEMA.glob("experimental_*.json")))


@cache
def experimental_requests() -> Json:
    return {method: params for name in experimental() for method, params in _file(name)["requests"].items()}


@cache
def _params_of(file: str) -> dict[str, Json]:
    """From a method to the schema of its params."""
    extra = experimental_requests() if file == "ClientRequest" else {}
    stable = {each["properties"]["method"]["enum"][0]: each["properties"]["params"] for each in _file(file)["oneOf"]}
    return {**extra, **stable}


@cache
def _result_definition(method: str) -> str | None:
    reference = _params_of("ClientRequest").get(method, {}).get("$ref", "")
    name = RESULT_NAMES.get(method) or reference.rpartition("/")[2].replace("Params", "Response")
    return name if name in definitions() else None


# Definitions with the shapes that were found to follow them.
_followed: Final[set[object]] = set()


def _reference(validator: Any, reference: str, value: object, schema: Json) -> Iterator[ValidationError]:
    """The check of `$ref`, done once for each shape: most messages repeat the items and threads of others."""
    key = (reference, shape(value)) if isinstance(value, dict) else None
    if key in _followed:
        return
    errors = list(Draft7Validator.VALIDATORS["$ref"](validator, reference, value, schema))
    if key is not None and not errors:
        _followed.add(key)
    yield from errors


_OncePerShape: Final = extend(Draft7Validator, {"$ref": _reference})  # type: ignore[no-untyped-call]


@cache
def _validator(schema: str) -> Any:
    return _OncePerShape({**json.loads(schema), "definitions": definitions()})


def _violations(schema: Json, value: object, where: str) -> list[str]:
    errors = _validator(json.dumps(schema)).iter_errors(value)
    return [f"{where}{error.json_path[1:]}: {error.message[:300]}" for error in errors]


def _defined(name: str, value: object, where: str) -> list[str]:
    return _violations({"$ref": f"#/definitions/{name}"}, value, where)


# --- shapes: what the schema can tell apart -----------------------------------------------------------------------


@cache
def _word_members() -> frozenset[str]:
    """Names of members whose text is a word of a vocabulary, somewhere in the schema."""
    found: set[str] = set()
    for definition in definitions().values():
        _collect_words(definition, "", found)
    return frozenset(found)


def _collect_words(schema: object, member: str, found: set[str]) -> None:
    if isinstance(schema, list):
        for part in schema:
            _collect_words(part, member, found)
    if not isinstance(schema, dict):
        return
    target = str(schema.get("$ref", "")).rpartition("/")[2]
    if "enum" in schema or "const" in schema or (target and _is_vocabulary(target)):
        found.add(member)
    for key, part in schema.items():
        if key in ("properties", "definitions"):
            for name, each in part.items():
                _collect_words(each, name, found)
        else:
            _collect_words(part, member, found)


@cache
def _is_vocabulary(name: str) -> bool:
    return '"enum"' in json.dumps(definitions().get(name, {}).get("oneOf", definitions().get(name, {})))


def shape(value: object, member: str = "") -> object:
    """Equal for values that the schema cannot tell apart."""
    match value:
        case dict():
            return tuple(sorted((key, shape(each, key)) for key, each in value.items()))
        case list():
            return ("list", frozenset(shape(each, member) for each in value))
        case str():
            return ("word", value[:60]) if member in _word_members() else "text"
        case bool() | None:
            return value
        case int():
            return "negative" if value < 0 else "integer"
    return type(value).__name__


# --- messages -------------------------------------------------------------------------------------------------------


class SchemaProof:
    """What was said so far: `violations` are those of the messages that are wrong, one text each."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.checked = 0
        self._known: set[object] = set()

    def check(self, message: Json, method: str | None = None) -> None:
        """`method` is that of the request which the message answers; None for one that was not understood."""
        key = (method, shape(message))
        if key in self._known:
            return
        self._known.add(key)
        self.checked += 1
        self.violations += problems(message, method)


def problems(message: Json, method: str | None = None) -> list[str]:
    """What is wrong with a message, with the method that it is about."""
    if "method" in message and "id" in message:
        return _asked(message)
    if "method" in message:
        return _told(message)
    if "error" in message:
        return _refused(message, method)
    if set(message) != {"id", "result"}:
        return [f"{method}: a message with {sorted(message)} has no known shape"]
    return [f"result of {text}" for text in _result(str(method), message["result"])]


def _told(message: Json) -> list[str]:
    method = message["method"]
    params = _params_of("ServerNotification").get(method)
    if params is None:
        return [f"{method}: no notification of the protocol"]
    found = _violations(params, message.get("params"), f"{method} ")
    if set(message) - OUR_NOTIFICATION_MEMBERS != {"method", "params", "emittedAtMs"}:
        found.append(f"{method}: a notification with {sorted(message)}")
    # What is not kept has no number; items are always kept before they are told.
    numbers = ("emittedAtMs", "seq") if "seq" in message or method.startswith("item/") else ("emittedAtMs",)
    found += [f"{method}.{name}: not a number" for name in numbers if type(message.get(name)) is not int]
    return found


def _asked(message: Json) -> list[str]:
    method = message["method"]
    params = _params_of("ServerRequest").get(method)
    if params is None:
        return [f"{method}: no request of the protocol"]
    found = _violations(params, message.get("params"), f"{method} ")
    if set(message) != {"method", "id", "params"} or type(message["id"]) is not int:
        found.append(f"{method}: a request with {sorted(message)} and the id {message['id']!r}")
    return found


def _refused(message: Json, method: str | None) -> list[str]:
    error = message["error"]
    right = set(message) == {"id", "error"} and isinstance(error, dict)
    right = right and {"code", "message"} <= set(error) <= {"code", "message", "data"}
    if not right or not isinstance(error["message"], str) or not error["message"]:
        return [f"error of {method}: {json.dumps(message)[:300]} has no known shape"]
    known = error["code"] in ERROR_CODES or method in OTHERS_ERRORS
    return [] if known else [f"error of {method}: unknown code {error['code']}"]


def _result(method: str, result: object) -> list[str]:
    if method in OUR_RESULTS:
        return _members(method, result, OUR_RESULTS[method])
    name = _result_definition(method)
    if name is None:
        return [f"{method}: no definition in the schema"]
    found = _defined(name, result, f"{method} ")
    extra = OUR_RESULT_MEMBERS.get(method, {})
    return found + [text for key, kind in extra.items() for text in _member(f"{method}.{key}", _get(result, key), kind)]


def _members(method: str, result: object, wanted: Mapping[str, str]) -> list[str]:
    kinds = {key.removesuffix("?"): kind for key, kind in wanted.items()}
    if not isinstance(result, dict) or not wanted.keys() & kinds.keys() <= result.keys() <= kinds.keys():
        return [f"{method}: expected the members {sorted(wanted)}, found {json.dumps(result)[:300]}"]
    return [text for key, value in result.items() for text in _member(f"{method}.{key}", value, kinds[key])]


def _get(result: object, key: str) -> object:
    return result.get(key) if isinstance(result, dict) else None


_EACH: Final[Mapping[str, Callable[[Any], list[str]]]] = {
    "notifications": lambda each: problems(each),
    "items": lambda each: _defined("ThreadItem", each, "item "),
    "modes": lambda each: _defined("CollaborationModeMask", each, "mode "),
    "hits": lambda each: _exactly(each, {"threadId", "itemId", "snippet"}),
    "prompts": lambda each: _exactly(each, {"server", "name", "title", "description", "arguments"}),
    "environments": lambda each: _exactly(each, {"environmentId", "kind", "default", "status", "error", "workdir"}),
    "inputs": lambda each: _defined("UserInput", each, "input "),
    "files": lambda each: [] if isinstance(each, dict) and isinstance(each.get("path"), str) else ["no file"],
}


def _exactly(each: object, members: set[str]) -> list[str]:
    return [] if isinstance(each, dict) and set(each) == members else [f"expected exactly {sorted(members)}"]


def _member(where: str, value: object, kind: str) -> list[str]:
    if kind in definitions():
        return _defined(kind, value, f"{where} ")
    if kind not in _EACH:
        return _violations({"type": kind.split("|")}, value, where)
    if not isinstance(value, list):
        return [f"{where}: no list"]
    return [f"{where}[{index}]: {text}" for index, each in enumerate(value) for text in _EACH[kind](each)]


# --- listening ------------------------------------------------------------------------------------------------------

THE_PROOF: Final = SchemaProof()


def heard(message: Json, method: str | None = None) -> None:
    """For clients of servers in other processes: call it with everything that arrives."""
    THE_PROOF.check(message, method)


@contextmanager
def judged(proof: SchemaProof = THE_PROOF) -> Iterator[None]:
    """A test fails when something was sent in it that the schema does not allow."""
    yield
    found, proof.violations = proof.violations, []
    if found:
        text = "\n".join(found[:20])
        pytest.fail(f"the server has sent what the schema of the protocol does not allow:\n{text}", pytrace=False)


def listen_in(proof: SchemaProof = THE_PROOF, put: Callable[[type, str, Any], None] = setattr) -> None:
    """Hook the ways out of every app-server in this process. `put` sets an attribute of a class."""
    from treadle.server import Client

    methods: WeakKeyDictionary[Client, dict[Any, deque[str]]] = WeakKeyDictionary()

    def check(client: Client, frame: bytes) -> None:
        message = json.loads(frame)
        waiting = methods.get(client, {}).get(message.get("id")) if "method" not in message else None
        proof.check(message, waiting.popleft() if waiting else None)

    def before(owner: type, name: str, see: Callable[..., None]) -> None:
        original = getattr(owner, name)

        def hooked(self: Any, *given: Any) -> Any:
            see(self, *given)
            return original(self, *given)

        put(owner, name, hooked)

    def begun(client: Client, call: Any, route: Any) -> None:
        methods.setdefault(client, defaultdict(deque))[call.request_id].append(route.method)

    before(Client, "_begin", begun)
    before(Client, "_send", check)
    before(Client, "send_event", lambda client, event: check(client, event.frame))
