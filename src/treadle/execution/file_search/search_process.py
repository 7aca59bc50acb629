"""Starting the program that searches, and reading its answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.errors import ExecError
from treadle.execution.file_search.fuzzy import Match
from treadle.execution.file_search.search_walk import WALK_S, Found

if TYPE_CHECKING:
    from treadle.execution import Environment

# Beyond the walk's own limit there is the start of the program, which takes its time on a busy machine.
SEARCH_S: Final = 4 * WALK_S

_BOOT: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from treadle.execution.file_search.search_program import main; main()"
)
_PACKAGES: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


async def search(environment: Environment, query: str, roots: Sequence[tuple[str, str]]) -> list[Found]:
    """The best matches, best first. `roots` are the client's names of directories, and where they are."""
    request = msgspec.json.encode((query, roots))
    command = [sys.executable, "-I", "-S", "-B", "-c", _BOOT, _PACKAGES]
    done = await environment.run(command, cwd="/", env={}, input=request, timeout=SEARCH_S)
    if done.exit_code != 0:
        raise ExecError(
            f"the file search ended with status {done.exit_code}: {done.stderr[-300:].decode(errors='replace')}"
        )
    answer = msgspec.json.decode(done.stdout, type=list[tuple[str, str, bool, int, tuple[int, ...]]])
    return [Found(root, path, is_directory, Match(score, at)) for root, path, is_directory, score, at in answer]
