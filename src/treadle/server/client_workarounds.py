"""What we do for the sake of single clients. Everything of that kind is in this table, and nowhere else."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Workarounds(Struct, frozen=True, kw_only=True):
    """`turn_min_s`: least time between the response to turn/start and turn/completed. `says_yes`: it accepts approvals
    without asking a person, so it is not asked in place of an automatic reviewer that could not decide."""

    turn_min_s: float = 0.0
    says_yes: bool = False


NONE: Final = Workarounds()

BY_CLIENT: Final = {
    # The official Python SDK drops a `turn/completed` that arrives before its caller has registered the turn, and then
    # waits for it for ever.
    "codex_python_sdk": Workarounds(turn_min_s=0.020, says_yes=True),
}


def workarounds_for(client_name: str) -> Workarounds:
    return BY_CLIENT.get(client_name, NONE)
