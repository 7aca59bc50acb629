"""An exec-server and a client of it, without an agent.

Starts `treadle exec-server` as another program, as it would run on another machine, and uses it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from treadle.execution import Closed, Environment, ExecParams, Exited, Output


async def use(url: str) -> None:
    async with await Environment.connect(url) as env:
        print(f"2. connected: {env.info.platform_os}, shell {env.info.shell.path}\n")

        done = await env.run(["uname", "-srm"])
        print(f"3. env.run(['uname', '-srm'])  ->  {done.text.strip()!r}, exit code {done.exit_code}\n")

        print("4. a process, as its events come:")
        script = "echo building; sleep 0.3; echo 'a warning' >&2; sleep 0.3; echo done; exit 7"
        process = await env.start(ExecParams(process_id="build", argv=["/bin/sh", "-c", script], cwd=Path.cwd()))
        began = time.monotonic()
        async for event in process.events():
            match event:
                case Output(seq, stream, chunk):
                    text = f"{stream.value}  {chunk.decode().strip()}"
                case Exited(seq, exit_code):
                    text = f"exited with code {exit_code}"
                case Closed(seq):
                    text = "closed"
                case _:
                    text, seq = repr(event), 0
            print(f"   {time.monotonic() - began:4.1f} s  event {seq}  {text}")

        print("\n5. a terminal with input:")
        terminal = await env.start(
            ExecParams(process_id="cat", argv=["cat"], cwd=Path.cwd(), env={"TERM": "dumb"}, tty=True)
        )
        await terminal.write(b"hello from here\n")
        await terminal.close_stdin()
        await terminal.wait()
        answer = await terminal.read()
        print(f"   {b''.join(chunk.chunk for chunk in answer.chunks)!r}\n")

        count = 100
        began = time.monotonic()
        for number in range(count):
            quick = await env.start(ExecParams(process_id=f"true-{number}", argv=["/bin/true"], cwd=Path.cwd()))
            await quick.wait()
        print(
            f"6. {count} times /bin/true, one after the other: {(time.monotonic() - began) / count * 1000:.1f} ms each"
        )


def main() -> int:
    server = subprocess.Popen([sys.executable, "-m", "treadle", "exec-server"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        url = server.stdout.readline().strip()
        if not url:
            print("the exec-server did not start: see its message above", file=sys.stderr)
            return 1
        print(f"1. `treadle exec-server` listens on {url.rpartition('/')[0]}, and prints its secret too")
        asyncio.run(use(url))
    finally:
        server.terminate()
        code = server.wait()
        server.stdout.close()
    print(f"7. the exec-server ended with exit code {code} and left nothing running")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
