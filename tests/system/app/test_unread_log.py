"""A server whose standard error nobody reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

MANY = 5_000  # requests, with more to say of them than a pipe holds


def test_it_goes_on_without_a_reader_of_its_log(tmp_path: Path) -> None:
    """At this level it says two lines for each request."""
    environment = {**os.environ, "TREADLE_LOG": "debug", "TREADLE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    environment.pop("TREADLE_LOG_FILE", None)
    with subprocess.Popen(
        [sys.executable, "-m", "treadle", "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        params = {"clientInfo": {"name": "test", "version": "1"}}
        for number in range(MANY):
            method = "thread/loaded/list" if number else "initialize"
            message = {"id": number, "method": method, "params": {} if number else params}
            server.stdin.write(json.dumps(message) + "\n")
            server.stdin.flush()
            while json.loads(server.stdout.readline()).get("id") != number:
                pass
        server.stdin.close()
        assert server.wait(60) == 0
        assert server.stderr.read().count("\n") < MANY, "else nothing was lost, and this has tried nothing"
