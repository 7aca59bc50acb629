"""What can go wrong, and trying again."""

from __future__ import annotations

from collections.abc import Callable
from tempfile import TemporaryDirectory

from treadle import (
    Codex,
    CodexConfig,
    JsonRpcError,
    RequestTimeout,
    ServerBusyError,
    TurnFailed,
    TurnResult,
    is_retryable_error,
    retry_on_overload,
)
from treadle.testing import AppServerHarness
from treadle.types import TurnStatus


def main(config: CodexConfig | None = None) -> None:
    with Codex(config) as codex:
        thread = codex.thread_start()

        # A busy server says so; the same request is tried again a little later, each time after a longer wait.
        ask = busy_at_first(lambda: thread.run("Are you there?"))
        result = retry_on_overload(ask, max_attempts=4, initial_delay_s=0.05)
        if result.status == TurnStatus.completed:
            print("answer:  ", result.final_response)

        try:
            thread.run("This one fails.")
        except TurnFailed as error:
            print("failed:  ", error)

        # A turn that takes too long is interrupted on the server too, so the thread is free again.
        try:
            thread.run("This one takes an hour.", timeout=0.3)
        except RequestTimeout as error:
            print("too slow:", error)

        try:
            codex.thread_resume("no-such-thread")
        except JsonRpcError as error:
            print(f"refused:  {error} (worth another try: {is_retryable_error(error)})")

        print("answer:  ", thread.run("Still there?").final_response)


# --- only for the example: a server that is busy twice, and a script that plays the model ---


def busy_at_first(ask: Callable[[], TurnResult]) -> Callable[[], TurnResult]:
    refusals = iter([ServerBusyError(-32001, "Server overloaded; retry later.")] * 2)

    def attempt() -> TurnResult:
        for refusal in refusals:
            print("busy:    ", refusal)
            raise refusal
        return ask()

    return attempt


if __name__ == "__main__":
    with TemporaryDirectory() as folder, AppServerHarness(folder) as harness:
        harness.model.enqueue_assistant_message("Yes.")
        harness.model.enqueue_error(400, "this model takes no such input")
        harness.model.enqueue_assistant_message("Much later.", delay_s=3600)
        harness.model.enqueue_assistant_message("Always.")
        main(harness.codex_config())
