"""`ChatThread`: what a session knows of its thread, and the words for it. Pure."""

from __future__ import annotations

from typing import Any, Self

import msgspec
from msgspec import Struct

from treadle.cli.thread_choice import short_id
from treadle.cli.turn.turn_header import confinement
from treadle.cli.workplace import shown_place
from treadle.config.environment_settings import LOCAL
from treadle.pages.figures import count, money
from treadle.pages.safe_text import printable_line
from treadle.protocol.app.base import JsonObject
from treadle.protocol.app.settings import CollaborationMode, ThreadSettings
from treadle.protocol.app.threads import ThreadEnvironment, ThreadTokenUsage


class ChatThread(Struct, frozen=True, kw_only=True):
    """The thread of a session: made of the server's answer to start, resume or fork, and kept up to date by its
    notifications."""

    id: str
    name: str | None
    model: str
    provider: str
    effort: str | None
    cwd: str
    """Its directory on this machine."""
    environments: tuple[ThreadEnvironment, ...] = ()
    """Where its commands run."""
    sandbox: str
    approvals: str
    confinement: str | None
    """The type of the sandbox policy; None for a profile of the user, which has rules of its own."""
    network: bool
    """Whether the sandbox lets commands use the network."""
    plans: bool = False
    """Whether it is in plan mode: it looks, asks, and proposes a plan."""
    usage: ThreadTokenUsage | None = None

    @classmethod
    def of(cls, answer: Any) -> Self:
        """The thread of an answer to `thread/start`, `thread/resume` or `thread/fork`."""
        return cls(
            id=answer.thread.id,
            name=answer.thread.name,
            model=answer.model,
            provider=answer.model_provider,
            cwd=answer.cwd,
            environments=answer.thread.environments or (),
            plans=_plans(getattr(answer, "collaboration_mode", None)),
            **_described(
                answer.reasoning_effort, answer.approval_policy, answer.sandbox, answer.active_permission_profile
            ),
        )

    def with_settings(self, settings: ThreadSettings) -> Self:
        return msgspec.structs.replace(
            self,
            model=settings.model,
            provider=settings.model_provider,
            cwd=settings.cwd,
            environments=self.environments if self.elsewhere or len(self.environments) > 1 else (),
            plans=_plans(settings.collaboration_mode),
            **_described(
                settings.effort, settings.approval_policy, settings.sandbox_policy, settings.active_permission_profile
            ),
        )

    def moved(self, place: JsonObject) -> Self:
        environment = ThreadEnvironment(
            environment_id=place["environmentId"], cwd=place["cwd"], runtime_workspace_roots=()
        )
        return msgspec.structs.replace(self, environments=(environment,))

    @property
    def place(self) -> str:
        """Where its commands run, for people."""
        return shown_place(self.cwd, self.environments)

    @property
    def elsewhere(self) -> ThreadEnvironment | None:
        """The machine that it works on, and the directory there; None for this one."""
        first = next(iter(self.environments), None)
        return None if first is None or first.environment_id == LOCAL else first

    @property
    def folder(self) -> str:
        """The directory that the agent works in, wherever that is."""
        return self.environments[0].cwd if self.environments else self.cwd

    def with_name(self, name: str | None) -> Self:
        return msgspec.structs.replace(self, name=name)

    def with_usage(self, usage: ThreadTokenUsage) -> Self:
        return msgspec.structs.replace(self, usage=usage)

    @property
    def cost(self) -> str:
        """What the thread has cost; empty when that is nothing or not known."""
        dollars = None if self.usage is None else self.usage.thread_cost_usd or self.usage.cost_usd
        return money(dollars) if dollars else ""

    @property
    def context_left(self) -> int | None:
        """The part of the context window that is left, in percent; None when it is not known."""
        if self.usage is None or not self.usage.model_context_window:
            return None
        used = self.usage.last.total_tokens / self.usage.model_context_window
        return max(0, round(100 * (1 - used)))


def sandbox_words(policy: Any, profile: Any) -> str:
    """A sandbox as `--sandbox` names it. A profile of the user goes by its name: the policy beside it is only the
    nearest one."""
    if profile is not None and not profile.id.startswith(":"):
        return f"{profile.id} (profile)"
    name = str(getattr(policy, "type", "unknown"))
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)


def _described(effort: Any, approvals: Any, policy: Any, profile: Any) -> dict[str, Any]:
    """The members that are words made of the server's values."""
    confined, network = confinement(policy, profile)
    return {
        "effort": None if effort is None else str(effort),
        "approvals": approvals if isinstance(approvals, str) else "granular",
        "sandbox": sandbox_words(policy, profile),
        "confinement": confined,
        "network": network,
    }


def _plans(mode: CollaborationMode | None) -> bool:
    return mode is not None and mode.mode == "plan"


def status_line(facts: ChatThread, width: int) -> str:
    """The line at the bottom, of at most `width` characters: model, sandbox, thread, tokens, cost. What does not fit is
    left out, the least needed first."""
    usage = facts.usage
    left = facts.context_left
    # What does not fit is left out, the highest number first.
    ranked = [
        (0, printable_line(facts.model)),
        (1, printable_line(facts.sandbox)),
        (1, "plan mode" if facts.plans else ""),
        (4, printable_line(facts.name) if facts.name else f"thread {short_id(facts.id)}"),
        (2, f"{count(usage.total.total_tokens)} tokens" if usage is not None else ""),
        (3, facts.cost),
        (5, f"{left}% context left" if left is not None else ""),
    ]
    parts = [part for part in ranked if part[1]]
    while len(parts) > 1 and len(" · ".join(text for _, text in parts)) > width:
        parts.remove(max(parts))
    return " · ".join(text for _, text in parts)[:width]
