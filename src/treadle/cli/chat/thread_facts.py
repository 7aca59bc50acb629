"""`ThreadFacts`: what a session knows of its thread, told in words. Pure.

Made of the server's answer to start, resume or fork, and kept up to date by its notifications.
"""

from __future__ import annotations

from typing import Any, Self

import msgspec
from msgspec import Struct

from treadle.protocol.app.settings import ThreadSettings
from treadle.protocol.app.threads import ThreadTokenUsage


class ThreadFacts(Struct, frozen=True, kw_only=True):
    id: str
    name: str | None
    model: str
    provider: str
    effort: str | None
    cwd: str
    sandbox: str
    approvals: str
    confinement: str | None
    """The type of the sandbox policy; None for a profile of the user, which has rules of its own."""
    network: bool
    """Whether the sandbox lets commands use the network."""
    usage: ThreadTokenUsage | None = None

    @classmethod
    def of(cls, answer: Any) -> Self:
        """Of the answer to `thread/start`, `thread/resume` or `thread/fork`."""
        return cls(
            id=answer.thread.id,
            name=answer.thread.name,
            model=answer.model,
            provider=answer.model_provider,
            effort=_word(answer.reasoning_effort),
            cwd=answer.cwd,
            sandbox=sandbox_words(answer.sandbox, answer.active_permission_profile),
            approvals=_approvals(answer.approval_policy),
            **_limits(answer.sandbox, answer.active_permission_profile),
        )

    def with_settings(self, settings: ThreadSettings) -> Self:
        return msgspec.structs.replace(
            self,
            model=settings.model,
            provider=settings.model_provider,
            effort=_word(settings.effort),
            cwd=settings.cwd,
            sandbox=sandbox_words(settings.sandbox_policy, settings.active_permission_profile),
            approvals=_approvals(settings.approval_policy),
            **_limits(settings.sandbox_policy, settings.active_permission_profile),
        )

    def with_name(self, name: str | None) -> Self:
        return msgspec.structs.replace(self, name=name)

    def with_usage(self, usage: ThreadTokenUsage) -> Self:
        return msgspec.structs.replace(self, usage=usage)

    @property
    def context_left(self) -> int | None:
        """In percent; None when it is not known."""
        if self.usage is None or not self.usage.model_context_window:
            return None
        used = self.usage.last.total_tokens / self.usage.model_context_window
        return max(0, round(100 * (1 - used)))


def sandbox_words(policy: Any, profile: Any) -> str:
    """As `--sandbox` has it. A profile of the user by its name: the policy beside it is only the nearest one."""
    if profile is not None and not profile.id.startswith(":"):
        return f"{profile.id} (profile)"
    name = str(getattr(policy, "type", "unknown"))
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)


def tokens_words(count: int) -> str:
    """Short: 950, 12.3k, 1.2M."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def cost_words(dollars: float | None) -> str:
    """Empty when it is nothing, or not known."""
    return f"${dollars:.4f}" if dollars else ""


def _limits(policy: Any, profile: Any) -> dict[str, Any]:
    if profile is not None and not profile.id.startswith(":"):
        return {"confinement": None, "network": False}
    network = getattr(policy, "network_access", False)
    return {"confinement": str(getattr(policy, "type", "unknown")), "network": network in (True, "enabled")}


def _approvals(policy: Any) -> str:
    return policy if isinstance(policy, str) else "granular"


def _word(value: Any) -> str | None:
    return None if value is None else str(value)
