"""Threads to be shown: a rich one, and one that attacks whoever looks at it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC

from msgspec import Raw, structs

from treadle.pages import Heading, Page, ThreadExtras
from treadle.protocol.app import (
    AddPatchChangeKind,
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    ContextCompactionThreadItem,
    DeletePatchChangeKind,
    DynamicToolCallThreadItem,
    FileChangeThreadItem,
    FileUpdateChange,
    GitInfo,
    ImageViewThreadItem,
    LocalImageUserInput,
    McpToolCallError,
    McpToolCallThreadItem,
    NotLoadedThreadStatus,
    PlanThreadItem,
    ReasoningThreadItem,
    TextUserInput,
    Thread,
    ThreadItem,
    ThreadTokenUsage,
    ThreadTokenUsageUpdatedNotification,
    TokenUsageBreakdown,
    Turn,
    TurnError,
    TurnPlanStep,
    TurnPlanUpdatedNotification,
    UnknownCommandAction,
    UnknownItem,
    UpdatePatchChangeKind,
    UsageCost,
    UserMessageThreadItem,
    WebSearchThreadItem,
    encode,
)

THREAD_ID = "0199a6b2-7c31-7f52-9d0e-5b8f4a2c1d3e"
BEGUN = 1_771_500_000
# One pixel.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
)


def thread(*turns: Turn, **members: object) -> Thread:
    values: dict[str, object] = {
        "id": THREAD_ID,
        "cli_version": "1",
        "created_at": BEGUN,
        "cwd": "/home/ada/loom",
        "ephemeral": False,
        "model_provider": "openai",
        "model": "gpt-5.5",
        "preview": "the retry test fails now and then",
        "session_id": THREAD_ID,
        "source": "cli",
        "status": NotLoadedThreadStatus(),
        "turns": turns,
        "updated_at": BEGUN + 4000,
    }
    return Thread(**{**values, **members})  # type: ignore[arg-type]


def turn(number: int, *items: ThreadItem, **members: object) -> Turn:
    values: dict[str, object] = {
        "id": f"turn-{number}",
        "items": items,
        "status": "completed",
        "started_at": BEGUN + 600 * number,
        "duration_ms": 41_000 * number,
    }
    return Turn(**{**values, **members})  # type: ignore[arg-type]


def user(text: str, *images: str) -> UserMessageThreadItem:
    pictures = [LocalImageUserInput(path=path) for path in images]
    return UserMessageThreadItem(id="u", content=(*pictures, TextUserInput(text=text)))


def said(text: str, phase: str | None = None) -> AgentMessageThreadItem:
    return AgentMessageThreadItem(id="a", text=text, phase=phase)


def command(
    text: str, output: str = "", code: int | None = 0, ms: int = 1200, **members: str
) -> CommandExecutionThreadItem:
    return CommandExecutionThreadItem(
        id="c",
        command=f"/bin/bash -lc {text!r}",
        command_actions=(UnknownCommandAction(command=text),),
        cwd=members.get("cwd", "/home/ada/loom"),
        status=members.get("status", "completed" if code == 0 else "failed"),
        aggregated_output=output,
        duration_ms=ms,
        exit_code=code,
    )


def changes(*files: FileUpdateChange, status: str = "completed") -> FileChangeThreadItem:
    return FileChangeThreadItem(id="f", changes=files, status=status)


def updated(path: str, diff: str) -> FileUpdateChange:
    return FileUpdateChange(path=path, diff=diff, kind=UpdatePatchChangeKind())


def frames(turns: Iterable[Turn], *, cost: bool = True) -> list[Raw]:
    """The events that told of usage and plans."""
    told: list[Raw] = []
    total = [0, 0, 0]
    for number, one in enumerate(turns, 1):
        steps = [
            TurnPlanStep(status="completed", step="Reproduce the failure"),
            TurnPlanStep(status="completed" if number > 1 else "inProgress", step="Make the clock a parameter"),
            TurnPlanStep(status="pending", step="Run the whole suite twice"),
        ]
        if number <= 2:
            plan = TurnPlanUpdatedNotification(thread_id=THREAD_ID, turn_id=one.id, plan=tuple(steps))
            told.append(_frame("turn/plan/updated", plan))
        used = (9_000 * number, 4_000 * number * (number > 1), 1_200 + 700 * number)
        total = [before + more for before, more in zip(total, used, strict=True)]
        usage = ThreadTokenUsage(
            last=_breakdown(used),
            total=_breakdown(total),
            cost=UsageCost(turn_usd=0.0123 * number, thread_usd=0.0123 * number * (number + 1) / 2),
        )
        if not cost:
            usage = ThreadTokenUsage(last=usage.last, total=usage.total)
        updated = ThreadTokenUsageUpdatedNotification(thread_id=THREAD_ID, turn_id=one.id, token_usage=usage)
        told += [_frame("item/completed", one), _frame("thread/tokenUsage/updated", updated)]
    return told


def _frame(method: str, params: object) -> Raw:
    return Raw(encode({"method": method, "params": params, "emittedAtMs": 1}))


def _breakdown(used: Iterable[int]) -> TokenUsageBreakdown:
    given, cached, output = used
    return TokenUsageBreakdown(
        input_tokens=given,
        cached_input_tokens=cached,
        output_tokens=output,
        reasoning_output_tokens=output // 2,
        total_tokens=given + output,
    )


def heading(whole: Thread) -> Heading:
    facts = ThreadExtras()
    facts.take(frames(whole.turns))
    bare = tuple(structs.replace(one, items=()) for one in whole.turns)
    return Heading(structs.replace(whole, turns=()), bare, facts, UTC)


def written(page: Page, whole: Thread) -> str:
    """The whole page."""
    pieces = [page.head(heading(whole))]
    for number, one in enumerate(whole.turns, 1):
        pieces.append(page.turn_begun(number, one))
        pieces += [page.item(item) for item in one.items]
        pieces.append(page.turn_ended(one))
    return "".join([*pieces, page.foot()])


# --- the rich one ----------------------------------------------------------------------------------------------------

_ANSWER = """\
The test was **flaky because of the clock**: `Retry.wait` read `time.monotonic()` twice, and a slow machine made the
second value pass the deadline.

### What I changed

1. `Retry` takes a `clock` now, `time.monotonic` by default.
2. The test gives it a clock of its own, so nothing waits any more.

| | before | after |
|---|---:|---:|
| runs that failed | 7 of 200 | 0 of 200 |
| time of the test | 3.1 s | 0.02 s |

```python
def wait(self, attempt: int) -> float:
    left = self.deadline - self._clock()
    return min(left, self.base * 2**attempt)
```

> The public signature stays. See [the notes](https://example.org/notes) and [retry.py](/home/ada/loom/retry.py:41).
"""
_DIFF = """\
@@ -38,9 +38,10 @@ class Retry:
-    def __init__(self, deadline: float, base: float = 0.1) -> None:
+    def __init__(self, deadline: float, base: float = 0.1, clock: Callable[[], float] = time.monotonic) -> None:
+        self._clock = clock
         self.deadline = deadline
         self.base = base
     def wait(self, attempt: int) -> float:
-        left = self.deadline - time.monotonic()
-        return min(left, self.base * 2**attempt) if time.monotonic() < self.deadline else 0
+        left = self.deadline - self._clock()
+        return max(0, min(left, self.base * 2**attempt))
"""


def rich_thread(picture: str = "/nowhere/screen.png") -> Thread:
    failing = "\n".join(["tests/test_retry.py F", "E   assert 0.0 > 0", "1 failed in 3.12s"])
    first = turn(
        1,
        user(
            "the retry test fails now and then in CI.\nFind out why, and fix it:\n\n- no sleeps\n- keep the API",
            picture,
        ),
        ReasoningThreadItem(id="r", summary=("**Looking at the test**\n\nIt compares two readings of the clock.",)),
        said("I'll run the test many times first, to see it fail.", "commentary"),
        command("for i in $(seq 200); do pytest -q tests/test_retry.py || exit 1; done", failing, 1, 64_200),
        command("rg -n monotonic src", "src/retry.py:44:        left = self.deadline - time.monotonic()\n", 0, 40),
        changes(
            updated("src/retry.py", _DIFF),
            FileUpdateChange(path="tests/clock.py", diff="class Clock:\n    now = 0.0\n", kind=AddPatchChangeKind()),
            FileUpdateChange(path="tests/slow.py", diff="import time\n", kind=DeletePatchChangeKind()),
        ),
        command("git push --force", "", None, 0, status="declined"),
        said(_ANSWER),
    )
    second = turn(
        2,
        user("what do others do about this?"),
        WebSearchThreadItem(id="w", query="python test flaky time.monotonic"),
        McpToolCallThreadItem(
            id="m",
            server="docs",
            tool="search",
            arguments={"query": "clock"},
            status="failed",
            error=McpToolCallError(message="no such index"),
            duration_ms=310,
        ),
        DynamicToolCallThreadItem(
            id="d", tool="open_ticket", arguments={"title": "Flaky test"}, status="completed", success=True
        ),
        ImageViewThreadItem(id="i", path=picture),
        ContextCompactionThreadItem(id="k"),
        PlanThreadItem(id="p", text="1. Ask\n2. Wait\n3. *Merge*"),
        said("Most of them **inject the clock**, as we do now."),
    )
    third = turn(
        3,
        user("now do the same for the scheduler"),
        UnknownItem({"type": "hologram", "id": "x", "shape": "cube"}),
        status="failed",
        error=TurnError(message="the model could not be reached: connection refused"),
    )
    return thread(
        first, second, third, name="Flaky retry test", git_info=GitInfo(branch="fix/retry", sha="8d3f2c19aa01bb02cc")
    )


# --- the one that attacks --------------------------------------------------------------------------------------------

MARK = "pwned"
ATTACK = (
    f"<script>document.title='{MARK}'</script></style></title></pre></textarea>"
    f"<img src=x onerror=\"document.title='{MARK}'\">"
    f"<svg onload=\"document.title='{MARK}'\"><iframe src='javascript:alert(1)'></iframe>"
    f"[click](javascript:document.title='{MARK}') [c2](JaVaScRiPt:alert(1)) ![p](http://127.0.0.1:9/x.png) "
    f'[d](data:text/html,<script>alert(1)</script>) <a href="javascript:alert(1)">x</a> "\'><b onmouseover=alert(1)>'
    "\u202egnp.exe\u2066 \x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m \x00 &lt;script&gt; --> ]]> <!-- "
)


def hostile_thread() -> Thread:
    only = turn(
        1,
        user(ATTACK, f"/tmp/{ATTACK}.png"),
        ReasoningThreadItem(id="r", summary=(ATTACK,)),
        said(ATTACK),
        said(f"```html\n{ATTACK}\n"),
        said(f"`{ATTACK}`\n\n# {ATTACK}\n\n| {ATTACK} |\n|---|\n| {ATTACK} |\n\n[{ATTACK}]: javascript:alert(1)"),
        command(ATTACK, f"{ATTACK}\n```\n````\n{ATTACK}", 1, cwd=f"/{ATTACK}"),
        changes(updated(ATTACK, f"@@ {ATTACK}\n+{ATTACK}\n-{ATTACK}\n {ATTACK}"), status="failed"),
        McpToolCallThreadItem(
            id="m",
            server=ATTACK,
            tool=ATTACK,
            arguments={ATTACK: ATTACK},
            status="failed",
            error=McpToolCallError(message=ATTACK),
        ),
        ImageViewThreadItem(id="i", path=ATTACK),
        WebSearchThreadItem(id="w", query=ATTACK),
        PlanThreadItem(id="p", text=ATTACK),
        UnknownItem({"type": ATTACK, "id": "x", ATTACK: ATTACK}),
        status="failed",
        error=TurnError(message=ATTACK),
    )
    return thread(only, name=ATTACK, cwd=ATTACK, model=ATTACK, model_provider=ATTACK, git_info=GitInfo(branch=ATTACK))
