"""Lines as a real app-server writes them: answers, and the notifications of a turn.

Every member that the real one sends is there, in its order: what an SDK ignores costs time too. Nothing but the
standard library is used here, so that no SDK has a hand in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain, zip_longest
from typing import Any, Final

_SECONDS: Final = 1_794_706_121
_MS: Final = 1_794_706_121_788
_CWD: Final = "/home/user/project"
DELTA: Final = "item/agentMessage/delta"
BEFORE: Final = ("turn/started", "item/started")
AFTER: Final = ("item/completed", "turn/completed")
_OUTPUT: Final = 2_048

Json = dict[str, Any]


def thread_id(number: int) -> str:
    return f"01a1dcd2-236b-70d1-9d72-{number:012x}"


def turn_id(number: int) -> str:
    return f"01a1dcd2-23c2-7c01-89c8-{number:012x}"


def text(number: int) -> str:
    """What the delta of this number says: so that one that is lost, doubled or late is seen."""
    return f"word {number} "


# --- answers ---


def answer(request_id: Any, result: Mapping[str, Any]) -> bytes:
    return _line({"id": request_id, "result": result})


def initialized() -> Json:
    agent = "bench/0.166.0 (Debian 12.0.0; x86_64) xterm (bench; 1)"
    return {"userAgent": agent, "codexHome": "/home/user/.codex", "platformFamily": "unix", "platformOs": "linux"}


def thread_started(number: int) -> Json:
    name = thread_id(number)
    roots = [_CWD]
    thread = {
        "id": name,
        "environments": [{"environmentId": "local", "cwd": _CWD, "runtimeWorkspaceRoots": roots}],
        "extra": None,
        "sessionId": name,
        "forkedFromId": None,
        "parentThreadId": None,
        "preview": "",
        "ephemeral": False,
        "section": None,
        "sectionEnteredAt": None,
        "projectId": None,
        "historyMode": "paginated",
        "modelProvider": "mock_provider",
        "model": "mock-model",
        "reasoningEffort": None,
        "createdAt": _SECONDS,
        "updatedAt": _SECONDS,
        "recencyAt": _SECONDS,
        "status": {"type": "idle"},
        "path": f"/home/user/.codex/sessions/2026/11/15/rollout-2026-11-15T01-16-10-{name}.jsonl",
        "cwd": _CWD,
        "cliVersion": "0.166.0",
        "originator": "bench",
        "source": "vscode",
        "canAcceptDirectInput": True,
        "threadSource": None,
        "agentNickname": None,
        "agentRole": None,
        "gitInfo": None,
        "name": None,
        "daybreakEnabled": None,
        "turns": [],
    }
    return {
        "thread": thread,
        "model": "mock-model",
        "modelProvider": "mock_provider",
        "serviceTier": None,
        "disabledPluginIds": [],
        "cwd": _CWD,
        "runtimeWorkspaceRoots": roots,
        "instructionSources": [],
        "approvalPolicy": "never",
        "approvalsReviewer": "user",
        "sandbox": {"type": "readOnly", "networkAccess": False},
        "activePermissionProfile": None,
        "reasoningEffort": None,
        "multiAgentMode": "explicitRequestOnly",
    }


def turn_started(number: int) -> Json:
    return {"turn": _turn(number, "inProgress", [], None)}


# --- notifications ---


def delta(thread: int, turn: int, said: str) -> bytes:
    return _notification(DELTA, {**_ids(thread, turn), "itemId": "msg_1", "delta": said})


def completed_message(thread: int, turn: int, said: str) -> bytes:
    return _item_notification("item/completed", thread, turn, _message(said, _MS))


def completed_command(thread: int, turn: int, number: int, output: int = _OUTPUT) -> bytes:
    """With so many bytes of output, and two actions."""
    row = f"-rw-r--r-- 1 user user {number:5} Nov 15 08:37 module_{number}.py\n"
    item = {
        "type": "commandExecution",
        "id": f"call_{number}",
        "pluginId": None,
        "scriptPath": None,
        "command": "/bin/bash -lc 'cat README.md && ls -l src'",
        "cwd": _CWD,
        "processId": "86470",
        "source": "unifiedExecStartup",
        "status": "completed",
        "commandActions": [
            {"type": "read", "command": "cat README.md", "name": "README.md", "path": f"{_CWD}/README.md"},
            {"type": "listFiles", "command": "ls -l src", "path": "src"},
        ],
        "aggregatedOutput": (row * (output // len(row) + 1))[:output],
        "exitCode": 0,
        "durationMs": 12,
        "startedAtMs": _MS,
        "completedAtMs": _MS,
    }
    return _item_notification("item/completed", thread, turn, item)


def turn_lines(number: int, deltas: int) -> list[bytes]:
    """All notifications of a turn; turn and thread have the same number."""
    whole = "".join(map(text, range(deltas)))
    return [
        _notification("turn/started", _about(number, _turn(number, "inProgress", [], _SECONDS))),
        _item_notification("item/started", number, number, _message("", None)),
        *(delta(number, number, text(index)) for index in range(deltas)),
        completed_message(number, number, whole),
        _notification("turn/completed", _about(number, _turn(number, "completed", [_message(whole, _MS)], _SECONDS))),
    ]


def interleaved(numbers: Iterable[int], deltas: int) -> bytes:
    """The notifications of several turns, one of each in turn."""
    turns = (turn_lines(number, deltas) for number in numbers)
    return b"".join(chain.from_iterable(zip_longest(*turns, fillvalue=b"")))


def _ids(thread: int, turn: int) -> Json:
    return {"threadId": thread_id(thread), "turnId": turn_id(turn)}


def _about(number: int, turn: Json) -> Json:
    return {"threadId": thread_id(number), "turn": turn}


def _turn(number: int, status: str, items: list[Json], started: int | None) -> Json:
    over = status == "completed"
    return {
        "id": turn_id(number),
        "rootTurnId": turn_id(number),
        "items": items,
        "itemsView": "summary" if over else "notLoaded",
        "status": status,
        "error": None,
        "startedAt": started,
        "completedAt": _SECONDS if over else None,
        "durationMs": 126 if over else None,
    }


def _message(said: str, completed: int | None) -> Json:
    return {
        "type": "agentMessage",
        "id": "msg_1",
        "text": said,
        "phase": None,
        "memoryCitation": None,
        "delivery": None,
        "questions": None,
        "startedAtMs": _MS,
        "completedAtMs": completed,
    }


def _item_notification(method: str, thread: int, turn: int, item: Json) -> bytes:
    when = "completedAtMs" if method == "item/completed" else "startedAtMs"
    return _notification(method, {"item": item, **_ids(thread, turn), when: _MS})


def _notification(method: str, params: Json) -> bytes:
    return _line({"method": method, "params": params, "emittedAtMs": _MS})


def _line(message: Json) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
