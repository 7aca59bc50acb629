"""`TurnHeader`: facts before a turn (what it runs on, under which rules) and after it (how to go on). `TurnUsage`: what
the turn has used. Plain text, for all renderers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from treadle.agent.model_failures import failure_of
from treadle.cli.workplace import shown_place
from treadle.protocol.app.settings import GranularAskForApproval

if TYPE_CHECKING:
    from treadle.config.model_settings import ModelChoice
    from treadle.llm import ProviderConfig
    from treadle.protocol.app.threads import ThreadTokenUsage
    from treadle.protocol.app.turns import TurnError

_APPROVALS: Final = {
    "never": "never: nobody is asked, and what the sandbox does not allow is refused",
    "on-request": "on request: you are asked before something leaves the sandbox",
    "untrusted": "untrusted: you are asked before every command that is not known to be harmless",
}
# Where nobody can be asked: what can be typed instead.
_NOBODY: Final = "nobody can be asked here; --sandbox allows more, and on a terminal --approval on-request asks"


class TurnHeader:
    """The facts around the turn of one run.

    Args:
        choice: Why this model was chosen.
        asks: Whether somebody is there to be asked.
        stored_in: Where threads are stored; None for one that is not.
        provider: The provider of the model, to say what to do when it does not answer.
    """

    def __init__(
        self,
        choice: ModelChoice | None = None,
        *,
        asks: bool = False,
        stored_in: str | None = None,
        provider: ProviderConfig | None = None,
    ) -> None:
        self._choice = choice
        self._provider_config = provider
        self._asks = asks
        self._stored_in = stored_in
        self._thread_id = ""

    def facts(self, started: Any) -> dict[str, str]:
        """`started` is the answer to `thread/start` or `thread/resume`."""
        self._thread_id = started.thread.id
        provider = started.model_provider
        # A thread that is resumed may have another provider than the settings: then the thread is the reason.
        if self._choice is not None and self._choice.provider == provider:
            provider = f"{provider}, because {self._choice.because}"
        profile = started.active_permission_profile
        if profile is None or profile.id.startswith(":"):
            sandbox = "".join(f" {char.lower()}" if char.isupper() else char for char in started.sandbox.type)
        else:  # one of the user, by its name: the policy beside it is only the nearest one
            sandbox = f"{profile.id} (permission profile)"
        policy = started.approval_policy
        if not self._asks:
            approval = f"{policy if isinstance(policy, str) else 'granular'}: {_NOBODY}"
        elif isinstance(policy, GranularAskForApproval):
            approval = _APPROVALS["on-request" if policy.granular.sandbox_approval else "never"]
        else:
            approval = _APPROVALS.get(str(policy), str(policy))
        return {
            "model": f"{started.model} ({provider})",
            "where": shown_place(started.cwd, started.thread.environments),
            "sandbox": sandbox,
            "approval": approval,
            "thread": self._thread_id,
        }

    def next_steps(self, error: TurnError | None = None) -> dict[str, str]:
        """How the thread goes on, as a command to copy, and where it is stored. After an error, what to type first."""
        failure = None if error is None else failure_of(error, self._provider_config)
        first = {} if failure is None else {"try": failure.advice}
        if self._stored_in is None or not self._thread_id:
            return first
        return first | {"go on": f'treadle exec resume {self._thread_id} "…"', "stored": self._stored_in}


def confinement(policy: Any, profile: Any) -> tuple[str | None, bool]:
    """The type of sandbox policy of a thread's commands, and whether they have the network: to explain why they fail. A
    profile of the user has rules of its own, which are not explained."""
    if profile is not None and not profile.id.startswith(":"):
        return None, False
    return str(getattr(policy, "type", "unknown")), getattr(policy, "network_access", False) in (True, "enabled")


class TurnUsage:
    """Tokens, dollars and seconds of a turn, counted from what the server reports of the thread, of which the turn is
    the last part."""

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None
        self._now: ThreadTokenUsage | None = None

    def begin(self) -> None:
        """A turn begins. What was reported of the thread before, as when it is resumed, does not count."""
        total = None if self._now is None else self._now.total
        self._before = None if total is None else (total.input_tokens, total.output_tokens)
        self._now = None

    def update(self, usage: ThreadTokenUsage) -> None:
        total, last = usage.total, usage.last
        if self._before is None:
            self._before = total.input_tokens - last.input_tokens, total.output_tokens - last.output_tokens
        self._now = usage

    def text(self, duration_ms: int | None) -> str:
        """`1,200 tokens in, 34 out · $0.0123 · 1.5 s`; the cost is that of the turn, and of the thread where that is
        more."""
        parts: list[str] = []
        if self._now is not None and self._before is not None:
            total = self._now.total
            tokens_in, tokens_out = total.input_tokens - self._before[0], total.output_tokens - self._before[1]
            parts.append(f"{tokens_in:,} tokens in, {tokens_out:,} out")
            turn, thread = self._now.cost_usd, self._now.thread_cost_usd
            if turn:
                more = f" (${thread:.4f} with the turns before)" if thread is not None and thread > turn else ""
                parts.append(f"${turn:.4f}{more}")
        return " · ".join([*parts, f"{(duration_ms or 0) / 1000:.1f} s"])
