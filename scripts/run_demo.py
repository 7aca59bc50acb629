"""What `make run` shows: `treadle exec` on the offline model, in a folder and a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROMPT = "Look around and leave a note."


def main() -> int:
    program = str(Path(sys.argv[1]).absolute())
    with tempfile.TemporaryDirectory(prefix="treadle-") as root:
        project, home = Path(root) / "project", Path(root) / "home"
        project.mkdir()
        (project / "README.md").write_text("# A small project\n")
        (project / "hello.py").write_text('print("hello")\n')
        print(f'$ treadle exec --sandbox workspace-write "{PROMPT}"\n', flush=True)
        command = [program, "exec", "--sandbox", "workspace-write", PROMPT]
        # The user's own settings and threads have no part in it.
        environment = {**os.environ, "TREADLE_HOME": str(home)}
        return subprocess.run(command, cwd=project, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
