"""Write the earlier shapes of the SDK in `treadle/compat` from one of them, `codex_app_server/async_api.py`.

python scripts/make_compat.py            # write them
python scripts/make_compat.py --check    # say whether they are up to date
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from make_sync import ALL, API, changed, formatted  # type: ignore[import-not-found]  # it lies beside this script

import treadle

COMPAT: Final = Path(treadle.__file__).parent / "compat"
FIRST: Final = "codex_app_server"
LATER: Final = "openai_codex_0_131"
SOURCE: Final = COMPAT / FIRST / "async_api.py"

_POLICY: Final = (
    r" +approval_policy: AskForApproval \| None = None,\n +approvals_reviewer: ApprovalsReviewer \| None = None,\n"
)
_PASSED: Final = r"approval_policy=approval_policy,\s+approvals_reviewer=approvals_reviewer,"
# The later one has one word for who decides instead of the two settings of the protocol.
LATER_RULES: Final = (
    (rf"\b{FIRST}\b", LATER),
    (r"`api` here and both modules of `\w+` are made from this file", f"Made from {FIRST}/async_api.py"),
    (
        r"(def thread_start\(\n +self,\n +\*,\n)" + _POLICY,
        r"\1        approval_mode: ApprovalMode = ApprovalMode.auto_review,\n",
    ),
    (_POLICY, "        approval_mode: ApprovalMode | None = None,\n"),
    (r"\*\*without_none\(\s+" + _PASSED, "**approval_settings(approval_mode), **without_none("),
    (_PASSED, "approval_mode=approval_mode,"),
    (r" +(ApprovalsReviewer|AskForApproval),\n", ""),
    (r"(from treadle\.client\.metadata)", r"from treadle.client.modes import ApprovalMode, approval_settings\n\1"),
)
SETTINGS: Final = (
    "from treadle.compat.older import approval_mode_settings as _approval_mode_settings  # noqa: F401 - also from here"
)
ASYNC_NAMES: Final = "AsyncCodex, AsyncThread, AsyncTurnHandle"


def main() -> int:
    texts = render()
    if "--check" in sys.argv:
        stale = [str(path) for path, text in texts.items() if not path.exists() or path.read_text() != text]
        print("up to date" if not stale else f"out of date: {', '.join(stale)}")
        return 1 if stale else 0
    for path, text in texts.items():
        path.write_text(text)
    return 0


def render() -> dict[Path, str]:
    first = SOURCE.read_text()
    later: str = changed(first, LATER_RULES, f"{FIRST}/async_api.py")
    return {
        COMPAT / FIRST / "api.py": formatted(_blocking(first, FIRST), COMPAT / FIRST / "api.py"),
        COMPAT / LATER / "async_api.py": formatted(later, COMPAT / LATER / "async_api.py"),
        COMPAT / LATER / "api.py": formatted(_blocking(later, LATER), COMPAT / LATER / "api.py"),
    }


def _blocking(text: str, name: str) -> str:
    """The blocking face, with the names of the other one beside it, as one module had them."""
    head = (
        f'"""`Codex`, `Thread`, `TurnHandle` with the parameters of `{name}`, and the same for asyncio.\n\n'
        f'Made from {FIRST}/async_api.py by scripts/make_compat.py.\n"""\n'
    )
    rules = ((r'(?s)\A""".*?"""\n', head), *API, *ALL)
    text = changed(text, rules, f"{name}/async_api.py")
    others = ", ".join(f"{one} as {one}" for one in ASYNC_NAMES.split(", "))
    below = "from treadle.compat.older"
    if name == LATER:  # tests took it from there
        text = text.replace(below, f"{SETTINGS}\n{below}", 1)
    return text.replace(below, f"from treadle.compat.{name}.async_api import {others}\n{below}", 1)


if __name__ == "__main__":
    sys.exit(main())
