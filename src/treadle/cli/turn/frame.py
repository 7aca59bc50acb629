"""What is said before a turn and after it: what it runs on and under which rules, and how to go on. Plain text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from treadle.cli.model_problem import turn_remedy
from treadle.protocol.app.settings import GranularAskForApproval

if TYPE_CHECKING:
    from treadle.config.model_choice import ModelChoice
    from treadle.llm import ProviderConfig
    from treadle.protocol.app.turn_errors import TurnError

_APPROVALS: Final = {
    "never": "never: nobody is asked, and what the sandbox does not allow is refused",
    "on-request": "on request: you are asked before something leaves the sandbox",
    "untrusted": "untrusted: you are asked before every command that is not known to be harmless",
}
# Where nobody can be asked: what can be typed instead.
_NOBODY: Final = "nobody can be asked here; --sandbox allows more, and on a terminal --approval on-request asks"


class Frame:
    """The frame of one run.

    Args:
        choice: Why this model was chosen.
        asks: Whether somebody is there to be asked.
        kept_in: Where threads are kept; None for one that is not.
        provider: Who is asked, to say what to do when it does not answer.
    """

    def __init__(
        self,
        choice: ModelChoice | None = None,
        *,
        asks: bool = False,
        kept_in: str | None = None,
        provider: ProviderConfig | None = None,
    ) -> None:
        self._choice = choice
        self._provider_config = provider
        self._asks = asks
        self._kept_in = kept_in
        self._thread_id = ""

    def facts(self, started: Any) -> dict[str, str]:
        """`started` is the answer to `thread/start` or `thread/resume`."""
        self._thread_id = started.thread.id
        return {
            "model": f"{started.model} ({self._provider(started.model_provider)})",
            "where": started.cwd,
            "sandbox": _sandbox(started),
            "approval": self._approval(started.approval_policy),
            "thread": self._thread_id,
        }

    def next_steps(self, error: TurnError | None = None) -> dict[str, str]:
        """How the thread goes on, as a command to copy, and where it is kept. After an error, what to type first."""
        do = None if error is None else turn_remedy(error, self._provider_config)
        first = {} if do is None else {"try": do}
        if self._kept_in is None or not self._thread_id:
            return first
        return first | {"go on": f'treadle exec resume {self._thread_id} "…"', "kept in": self._kept_in}

    def _provider(self, provider: str) -> str:
        """A thread that is resumed may have another one than the settings: for that, the reason is the thread."""
        if self._choice is None or self._choice.provider != provider:
            return provider
        return f"{provider}, because {self._choice.because}"

    def _approval(self, policy: Any) -> str:
        if not self._asks:
            return f"{policy if isinstance(policy, str) else 'granular'}: {_NOBODY}"
        if isinstance(policy, GranularAskForApproval):
            return _APPROVALS["on-request" if policy.granular.sandbox_approval else "never"]
        return _APPROVALS.get(str(policy), str(policy))


def confinement(started: Any) -> tuple[str | None, bool]:
    """What commands of the thread are confined by, and whether they have the network: to explain what they stumble
    over. A profile of the user has rules of its own, which are not explained."""
    profile = started.active_permission_profile
    if profile is not None and not profile.id.startswith(":"):
        return None, False
    return str(started.sandbox.type), getattr(started.sandbox, "network_access", False) is True


def shortened_home(path: str) -> str:
    """With ~ for the home directory."""
    home = os.path.expanduser("~").rstrip("/")
    return f"~{path[len(home) :]}" if home and path.startswith(f"{home}/") else path


def _sandbox(started: Any) -> str:
    """A profile of the user by its name: the policy beside it is only the nearest one."""
    profile = started.active_permission_profile
    if profile is None or profile.id.startswith(":"):
        return _words(started.sandbox.type)
    return f"{profile.id} (permission profile)"


def _words(name: str) -> str:
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name)
