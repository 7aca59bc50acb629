"""Where our SDK is meant to behave differently from the official one, and why. Everything else must be the same.

A `Departure` brings what the two have recorded to what they must have in common.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from interop.sdk.differences import DIFFERENCES, Server

Record = dict[str, Any]  # `seen`, `sent` and `unknown` of a recording


def _as_it_is(record: Any) -> Any:
    return record


@dataclass(frozen=True, slots=True)
class Departure:
    """`scenarios` are those in which it occurs, each time; without them it may occur in all, and does in `proof`."""

    reason: str
    proof: str
    scenarios: tuple[str, ...] = ()
    official: Callable[[Any], Any] = _as_it_is
    ours: Callable[[Any], Any] = _as_it_is

    def concerns(self, scenario: str) -> bool:
        return not self.scenarios or scenario in self.scenarios

    def occurs(self, official: Record, ours: Record) -> bool:
        return bool(self.official(official) != official or self.ours(ours) != ours)


def _everywhere(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A change of any value within a value, from the inside out."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            value = {name: walk(member) for name, member in value.items()}
        elif isinstance(value, list):
            value = [walk(each) for each in value]
        return change(value)

    return walk


def _without_the_users_message(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [each for each in value if each != "userMessage" and not _is_users_message(each)]


def _is_users_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "userMessage"


def _anonymous(value: Any) -> Any:
    if isinstance(value, dict) and value.get("name") == "CLIENT":
        return {"name": "CLIENT"}
    return "CLIENT" if value in ("codex_python_sdk", "treadle_python_sdk") else value


def _without_news(value: Any) -> Any:
    """Items without their times, usage without its cost and the turn's part of it, threads without their environments,
    and metadata without what the official SDK does not keep.
    """
    if not isinstance(value, dict):
        return value
    ours = {"started_at_ms", "completed_at_ms"} if "type" in value else {"codexHome", "extensions"}
    if "last" in value and "total" in value:
        ours |= {"cost", "turn"}
    if "cli_version" in value:
        ours |= {"environments"}
    if "sandbox" in value:
        ours |= {"active_permission_profile", "runtime_workspace_roots"}
    return {name: member for name, member in value.items() if name not in ours}


def _seen(**members: Any) -> Callable[[Any], Any]:
    return lambda record: {**record, "seen": {**record["seen"], **members}}


def _refused(record: Record) -> Record:
    first, *_ = [request for request in record["sent"] if request[0] == "turn/start"]
    others = [request for request in record["sent"] if request[0] != "turn/start"]
    return {**record, "seen": {"refused": True, "ends": ["completed"]}, "sent": [*others, first]}


DEPARTURES: Final = (
    Departure(
        reason="`items` is what the agent did and said: who called `run` knows what the user said",
        proof="turns.hello",
        scenarios=("turns.hello", "turns.phases", "turns.command", "whole.result"),
        official=lambda record: {**record, "seen": _everywhere(_without_the_users_message)(record["seen"])},
    ),
    Departure(
        reason="a client says who it is, and ours is another one",
        proof="turns.hello",
        official=_everywhere(_anonymous),
        ours=_everywhere(_anonymous),
    ),
    Departure(
        reason="a second turn would silently become part of the first; `steer` says that this is meant",
        proof="turns.joined",
        scenarios=("turns.joined",),
        official=_refused,
    ),
    Departure(
        reason="without a handler of the user's the answer is no: an SDK does not give permissions by itself",
        proof="settings.patch",
        scenarios=("settings.patch",),
        official=_seen(item=["declined", [["add", "hello\n"]]], text=None),
    ),
    Departure(
        reason="what the server tells cannot be changed by whoever reads it",
        proof="whole.kinds",
        scenarios=("whole.kinds",),
        official=_seen(**{"turns of a thread": "tuple"}),
    ),
    Departure(
        reason="a path is a str, which needs no model around it",
        proof="whole.kinds",
        scenarios=("whole.kinds",),
        official=_seen(**{"a path has a root": False}),
    ),
    Departure(
        reason="members that newer servers send, and extensions of ours",
        proof="whole.answers",
        scenarios=("whole.result", "whole.events", "whole.answers"),
        ours=_everywhere(_without_news),
    ),
    Departure(
        reason="ours has no remote control; whoever wants to know gets it as plain values",
        proof="turns.hello",
        ours=lambda record: {
            **record,
            "unknown": [method for method in record["unknown"] if method != "remoteControl/status/changed"],
        },
    ),
)


@dataclass(frozen=True, slots=True)
class Chance:
    """What a server leaves to chance, so that two plays may see different values.

    `member` is the part of what was seen, or None for the whole of it.
    """

    member: str | None
    allowed: Callable[[Server], tuple[Any, ...]]


def _steered(member: str) -> Chance:
    return Chance(member, lambda server: tuple(value[member] for value in DIFFERENCES["steering"].of(server)))


CHANCES: Final = {
    "control.steered": (_steered("items"), _steered("answered")),
    "control.interrupted_at_once": (Chance(None, DIFFERENCES["interrupt right after turn/start"].of),),
    "threads.listed": (Chance("pages", DIFFERENCES["pages by creation"].of),),
    "server.overloaded": (
        Chance("codes", lambda _: ([], [-32001])),
        Chance("retryable", lambda _: ([], [True])),
    ),
}

ONLY_OFFICIAL: Final = {
    "goals.reached": "the streams of a goal are private there; ours has `thread_goal_set` and the turns that follow",
    "goals.given_up": "the same",
}

NO_SERVER: Final = ("harness", "words", "shapes")
"""Files whose scenarios are about a package and not about a server."""
