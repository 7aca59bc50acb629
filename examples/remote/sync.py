"""Use a server that runs by itself, here or on another machine, and come back to a thread later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

from treadle import Codex, CodexConfig


def main(config: CodexConfig) -> None:
    with Codex(config) as codex:
        print(f"connected to a server on {codex.metadata.platformOs}")
        thread = codex.thread_start()
        thread.set_name("the long job")
        thread.run("Look around.")

    # Another client, tomorrow and from elsewhere: the threads are with the server.
    with Codex(config) as codex:
        found = codex.thread_list(search_term="the long job", limit=1).data[0]
        thread = codex.thread_resume(found.id)
        result = thread.run("Go on.")
        turns = thread.read(include_turns=True).thread.turns
        print(f"{found.name!r} went on: {result.status.value}, {len(turns)} turns")


if __name__ == "__main__":
    # The server's side. Yours is started once: treadle app-server --listen ws://0.0.0.0:4500 --token-file token
    with TemporaryDirectory() as folder:
        token = Path(folder, "token")
        token.touch(mode=0o600)  # a token that others can read is refused
        token.write_text(token_hex(32))
        listen = ["app-server", "--listen", "ws://127.0.0.1:0", "--token-file", str(token)]
        command = [sys.executable, "-m", "treadle", *listen]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            assert server.stdout is not None
            url = server.stdout.readline().strip()  # the first line that it prints
            try:
                main(CodexConfig(url=url, token=token.read_text()))
            finally:
                server.terminate()
