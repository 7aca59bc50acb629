"""What `make run` shows: a turn of `treadle exec` on the offline model, and what to do next.

    .venv/bin/python scripts/run_demo.py [FOLDER]

The workspace and the home are in FOLDER (default: `.demo` in the repository) and stay there, so that what was shown can
be looked at and gone on with. The user's own settings, keys and threads have no part in it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

REPOSITORY = Path(__file__).resolve().parent.parent
PROGRAM = Path(sys.executable).parent / "treadle"
PROMPT = "Look around and leave a note."
FILES = {
    "project/README.md": "# A small project\n\nIt says hello.\n",
    "project/hello.py": 'print("hello")\n',
    # Whatever keys there are: this costs nothing and asks nobody.
    "home/config.toml": 'model_provider = "offline"\n',
    "ask.py": """from treadle import Codex

with Codex() as codex:
    print(codex.thread_start().run("What does this project do?").final_response)
""",
}


def main() -> int:
    folder = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else REPOSITORY / ".demo"
    set_up(folder)
    console = Console(highlight=False)
    console.print(f'$ treadle exec --sandbox workspace-write "{PROMPT}"\n', style="bold", markup=False, soft_wrap=True)
    command = [str(PROGRAM), "exec", "--sandbox", "workspace-write", PROMPT]
    environment = {**os.environ, "TREADLE_HOME": str(folder / "home")}
    code = subprocess.run(command, cwd=folder / "project", env=environment, check=False).returncode
    if code == 0:
        show_next(console, folder)
    return code


def set_up(folder: Path) -> None:
    """A project and a home. What somebody has changed there since is left as it is."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(text)
    project = folder / "project"
    # A repository of its own: else the instructions of the one around it would be read.
    if shutil.which("git") and not (project / ".git").exists():
        subprocess.run(["git", "init", "--quiet"], cwd=project, check=False, stderr=subprocess.DEVNULL)


def show_next(console: Console, folder: Path) -> None:
    """What is to be typed is never broken into lines: it can be copied from a terminal of any width."""
    program, python, home, project, ask = (
        shlex.quote(os.path.relpath(path))
        for path in (PROGRAM, sys.executable, folder / "home", folder / "project", folder / "ask.py")
    )
    console.print(f"\nThe workspace is {project}, the home {home}. To go on with the thread:", markup=False)
    again = f'TREADLE_HOME={home} {program} exec -C {project} resume --last "Once more."'
    console.print(f"    {again}\n", style="cyan", markup=False, soft_wrap=True)
    console.print("What next?", style="bold")
    for title, line in (
        ("use your own model", f"{program} login && {program} chat"),
        (f"use it from Python: four lines, in {ask}", f"{python} {ask}"),
        ("drive claude or codex", f"{program} {_engine()}"),
    ):
        console.print(f"  {title}", markup=False)
        console.print(f"    {line}", style="cyan", markup=False, soft_wrap=True)


def _engine() -> str:
    """A run of the one that is here; else what says how to get one."""
    found = next((name for name in ("claude", "codex") if shutil.which(name)), None)
    return f'run --engine {found} "What does this project do?"' if found else "engines"


if __name__ == "__main__":
    sys.exit(main())
