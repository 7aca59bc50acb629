"""A program: one search. The query and the roots come as JSON on standard input, what was found
leaves on standard output."""

from __future__ import annotations

import json
import signal
import sys

from treadle.execution.file_search.search_walk import WALK_S, find


def main() -> None:
    signal.alarm(int(2 * WALK_S))  # a directory that hangs is nobody's to wait for
    query, roots = json.load(sys.stdin.buffer)
    found = [(one.root, one.path, one.is_directory, one.match.score, one.match.indices) for one in find(query, roots)]
    sys.stdout.buffer.write(json.dumps(found).encode("utf-8", "surrogatepass"))
