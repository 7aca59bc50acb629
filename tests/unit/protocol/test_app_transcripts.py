"""Every message that the real server and its clients were seen to send is read, and written again in the same words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import msgspec
import pytest

from schema_proof import definitions
from treadle.protocol.app import METHODS, NOTIFICATIONS, SERVER_REQUESTS, Unknown, convert, decode, encode
from unit.protocol.app_traffic import Recorded, struct_of, traffic
from unit.protocol.test_app_schema import check

TRAFFIC = traffic()

NOT_OURS = {
    "remoteControl/status/changed": "remote control of the vendor's desktop",
}

LEFT_OUT = {
    "*.extra": "vendor",
    "*.canAcceptDirectInput": "experimental",
    "*.daybreakEnabled": "vendor",
    "*.multiAgentMode": "experimental: sub-agents",
    "result:thread/resume.initialTurnsPage": "experimental",
    "result:thread/list.readStates": "experimental: what a person has read",
    "result:thread/read.readState": "experimental: what a person has read",
    "result:account/read.workspaceRouting": "vendor",
}
"""What the real side says and we don't, by kind, method and path (lists are not part of a path)."""


def known(message: Recorded) -> bool:
    return any(message.method in table for table in (METHODS, NOTIFICATIONS, SERVER_REQUESTS))


def raw(message: Recorded) -> bytes:
    return json.dumps({} if message.value is None and message.refused is None else message.value).encode()


def is_malformed(message: Recorded) -> bool:
    """The recording has one wrong answer of a client, given on purpose."""
    return message.kind == "answer" and "bogus" in message.value


GOOD = [message for message in TRAFFIC if known(message) and message.refused is None and not is_malformed(message)]
BAD = [message for message in TRAFFIC if known(message) and (message.refused is not None or is_malformed(message))]


def differences(theirs: Any, ours: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs.keys() | ours.keys():
            member = f"{path}.{name}"
            if name not in ours:
                yield member, "missing", theirs[name]
            elif name not in theirs:
                yield member, "added", ours[name]
            else:
                yield from differences(theirs[name], ours[name], member)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for one, other in zip(theirs, ours, strict=True):
            yield from differences(one, other, path)
    elif theirs != ours:
        yield path, "changed", (theirs, ours)


def left_out(path: str) -> str | None:
    return next((pattern for pattern in LEFT_OUT if fnmatchcase(path, pattern)), None)


def unexplained(message: Recorded) -> list[tuple[str, str, Any]]:
    again = json.loads(encode(decode(raw(message), struct_of(message))))
    found = differences({} if message.value is None else message.value, again, f"{message.kind}:{message.method}")
    rest = [each for each in found if not (each[1] == "missing" and left_out(each[0]))]
    if message.kind in ("params", "answer"):  # a client may say or leave out what is the default
        rest = [each for each in rest if each[1] == "changed" or each[2] not in (None, False, [], "turn")]
    return rest


def unknown_parts(value: object) -> Iterator[Unknown]:
    if isinstance(value, Unknown):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from unknown_parts(getattr(value, name))
    elif isinstance(value, tuple):
        for member in value:
            yield from unknown_parts(member)


def name_of(message: Recorded) -> str:
    return f"{message.where}-{message.kind}-{message.method}"


def test_the_recording_is_there() -> None:
    assert len(GOOD) > 250
    assert {message.kind for message in GOOD} == {"params", "result", "notification", "asked", "answer"}


def test_what_is_not_in_the_registry_is_listed() -> None:
    assert {message.method for message in TRAFFIC if not known(message)} == NOT_OURS.keys()


@pytest.mark.parametrize("message", GOOD, ids=name_of)
def test_read_and_written_again(message: Recorded) -> None:
    assert unexplained(message) == []
    struct = struct_of(message)
    read = decode(raw(message), struct)
    assert list(unknown_parts(read)) == []
    if message.kind in ("result", "notification", "asked") and getattr(struct, "__name__", None) in definitions():
        assert convert(message.value, struct) == read
        assert check(struct.__name__, json.loads(encode(read))) == []  # as in the schema of the real server


@pytest.mark.parametrize("message", BAD, ids=name_of)
def test_what_the_real_server_refuses_to_read_is_refused(message: Recorded) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(raw(message), struct_of(message))


def test_everything_left_out_is_in_the_recording() -> None:
    paths: set[str] = set()
    for message in GOOD:
        again = json.loads(encode(decode(raw(message), struct_of(message))))
        found = differences(message.value, again, f"{message.kind}:{message.method}")
        paths |= {path for path, how, _ in found if how == "missing"}
    assert {pattern for path in paths if (pattern := left_out(path))} == LEFT_OUT.keys()
