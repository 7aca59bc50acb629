"""Treadle in a real notebook, whose cells run in a real kernel: results and threads are shown, turns are drawn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interop.peers import installed

pytestmark = pytest.mark.interop
# Runs the cells that it is given, and prints what they show.
RUN = """
import json, sys
import nbformat
from nbclient import NotebookClient

cells = [nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)]
book = nbformat.v4.new_notebook(cells=cells)
NotebookClient(book, kernel_name="python3", timeout=60).execute()
print(json.dumps([[output.get("data", {}) for output in cell.outputs] for cell in book.cells]))
"""
CELLS = [
    "from treadle import AsyncCodex, Codex\ncodex = Codex(offline=True)\nthread = codex.thread_start(ephemeral=False)",
    "result = thread.run('look at <script>alert(1)</script>', show=True)",
    "result",
    "thread",
    "async with AsyncCodex(offline=True) as other:\n"
    "    done = await (await other.thread_start()).run('look', show=True)\n"
    "codex.close()\nthread",
]


def test_results_threads_and_turns_are_shown_in_a_notebook(tmp_path: Path) -> None:
    library = installed("notebook").parent
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "TREADLE_HOME": str(tmp_path / "home"),
        "PYTHONPATH": os.pathsep.join([str(library), *sys.path]),
        "JUPYTER_PATH": str(library / "share" / "jupyter"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=tmp_path,
        env=env,
        input=json.dumps(CELLS),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, (drawn,), (result,), (shown,), (drawn_too, closed) = json.loads(done.stdout)
    for data in (drawn, result, shown, drawn_too):
        html = data["text/html"]
        assert html.startswith('<div class="treadle-page">')
        assert "offline model" in html
        assert "<script" not in html
    assert drawn["text/html"] == result["text/html"]  # in its place, as it was in the end
    assert "look at &lt;script&gt;" in shown["text/html"]
    assert "text/html" not in closed  # nobody can be asked any more
