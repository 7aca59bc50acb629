"""Build what is published into `dist`, if everything is ready for it; else say what is missing.

    python -m scripts.make_release

Ready means: the version has its section in CHANGELOG.md and no tag yet, and everything is committed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from treadle import __version__

REPOSITORY = Path(__file__).resolve().parent.parent
DIST = REPOSITORY / "dist"


def main() -> int:
    missing = problems(
        __version__,
        (REPOSITORY / "CHANGELOG.md").read_text(),
        tags=_git("tag").split(),
        changed=_git("status", "--porcelain").splitlines(),
    )
    if missing:
        print("\n".join(missing), file=sys.stderr)
        return 1
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(DIST)], cwd=REPOSITORY, check=True)
    print(f"\nnext:\n  git tag v{__version__} && git push --tags\n  pipx run twine upload dist/treadle-{__version__}*")
    return 0


def problems(version: str, changelog: str, *, tags: Collection[str], changed: Collection[str]) -> list[str]:
    """What is missing; nothing if it can be released."""
    found = []
    if f"v{version}" in tags:
        found.append(f"v{version} has been released: write the next number into src/treadle/_version.py")
    if not re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        found.append(f"CHANGELOG.md has no section `## {version} - DATE`: it is what stood under Unreleased")
    unreleased = re.search(r"^## Unreleased\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if unreleased is not None and unreleased[1].strip():
        found.append(f"CHANGELOG.md still has something under Unreleased: it belongs to {version}")
    if changed:
        found.append(f"not everything is committed: {', '.join(line[3:] for line in changed)}")
    return found


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
