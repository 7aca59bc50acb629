"""`python -m bench mcp`: threads with three MCP servers, on our app-server and on the real one, side by side.

The servers are the probe of the tests, over stdio: it starts as fast as Python does, and what a call takes in it
alone is measured too. A tool is called by the client (`mcpServer/tool/call`), and by the model in a turn.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import family, machine, page, report
from bench.app_server import programs
from bench.app_server.__main__ import servers_of
from bench.app_server.measures import median_ms
from bench.app_server.mock import CALLED, running_mock
from bench.app_server.programs import Running
from bench.measures import Row
from bench.servers import BenchError, Server

# Isolated and without site-packages: it needs none, and they cost more than the rest of its start.
PROBE: Final = (sys.executable, "-I", "-S", str(Path(__file__).parents[1] / "tests" / "kit" / "mcp_probe.py"))
SERVERS: Final = (CALLED, "two", "three")
AT_ONCE: Final = 32
# 300 interpreters start at a time: no server is given up for it.
_STARTUP_S: Final = 300
_WARM_UP: Final = 5
_SETTLE_S: Final = 120.0
_CALLING: Final = """
[model_providers.calling]
name = "calls a tool in each turn"
base_url = "{model_url}/c1"
wire_api = "responses"
"""
_ARGUMENTS: Final = {"text": "hello"}


@dataclass(frozen=True, slots=True)
class Scale:
    rounds: int
    starts: int
    calls: int
    turns: int
    many_calls: int
    threads: int


FULL: Final = Scale(rounds=5, starts=20, calls=300, turns=40, many_calls=1000, threads=100)
QUICK: Final = Scale(rounds=1, starts=5, calls=100, turns=10, many_calls=320, threads=20)

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    rows: tuple[Row, ...]
    run: Callable[[Running, Scale], Values]
    servers: tuple[str, ...] = SERVERS
    share: bool = False
    """Only ours can."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    scale = QUICK if options.quick else FULL
    measures = [measure for measure in MEASURES if not options.only or measure.name in options.only]
    taking_part = servers_of(without_real=options.without_real)
    facts = dict(machine.facts(taking_part))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with running_mock() as model_url:
            samples = _rounds(taking_part, measures, options.rounds or scale.rounds, scale, model_url)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), file=sys.stderr)
    shown = list(report.lines(measures, samples))
    explained = f"{report.explained(options.rounds or scale.rounds)} Many threads are {scale.threads}."
    print(f"\n{explained}\n\n{report.table(shown)}")
    if options.json:
        options.json.write_text(report.as_json(facts, samples, shown), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    names = [measure.name for measure in MEASURES]
    parser = argparse.ArgumentParser(prog="python -m bench mcp", description=__doc__.partition("\n")[2].strip())
    parser.add_argument("--rounds", type=page.positive, metavar="N", help="how often it is measured (default 5)")
    parser.add_argument("--quick", action="store_true", help="smaller amounts, one round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample to FILE")
    parser.add_argument(
        "--only", action="append", metavar="NAME", choices=names, help=f"may be repeated: {', '.join(names)}"
    )
    parser.add_argument("--without-real", action="store_true", help="only ours: no installation, no ratios")
    return parser


def _rounds(
    taking_part: Sequence[Server], measures: Sequence[Measure], rounds: int, scale: Scale, model_url: str
) -> report.Samples:
    samples = report.Samples()
    for number in range(rounds):
        order = taking_part if number % 2 == 0 else tuple(reversed(taking_part))
        for measure in measures:
            print(f"round {number + 1} of {rounds}: {measure.name}", file=sys.stderr, flush=True)
            for server in order:
                if measure.share and server.name == "real":
                    continue
                with programs.home_for(model_url) as home:
                    with (home / "config.toml").open("a") as file:
                        file.write(_CALLING.format(model_url=model_url))
                        file.writelines(_table(name, share=measure.share) for name in measure.servers)
                    with programs.running(server, home) as up:
                        samples.add(measure, server.name, measure.run(up, scale))
    return samples


def _table(name: str, *, share: bool) -> str:
    """Three tools of the probe, as a model has room for them."""
    lines = {
        "command": PROBE[0],
        "args": list(PROBE[1:]),
        "startup_timeout_sec": _STARTUP_S,
        "enabled_tools": ["echo", "structured", "link"],
        **({"share": True} if share else {}),
    }
    return "\n".join([f"\n[mcp_servers.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in lines.items()), ""])


# --- measures --------------------------------------------------------------------------------------------------------


def _start(running: Running, scale: Scale) -> Values:
    """Also until the end of the first turn, which needs the servers."""
    client = running.client
    client.turn(client.start_threads(1)[0])
    starts, firsts = [], []
    for _ in range(scale.starts):
        began = time.perf_counter()
        (thread,) = client.start_threads(1)
        starts.append(time.perf_counter() - began)
        client.turn(thread)
        firsts.append(time.perf_counter() - began)
    return {"thread-start": statistics.median(starts) * 1e3, "first-turn": statistics.median(firsts) * 1e3}


def _call(running: Running, scale: Scale) -> Values:
    (thread,) = running.client.start_threads(1)
    alone = _alone_ms(scale.calls)
    params = _of_tool(thread)
    for _ in range(_WARM_UP):
        running.client.call("mcpServer/tool/call", params)
    whole = median_ms(lambda: running.client.call("mcpServer/tool/call", params), scale.calls)
    return {"call": whole, "alone": alone, "beyond": whole - alone}


def _many_calls(running: Running, scale: Scale) -> Values:
    (thread,) = running.client.start_threads(1)
    running.client.call("mcpServer/tool/call", _of_tool(thread))
    began = time.perf_counter()
    for sent in range(0, scale.many_calls, AT_ONCE):
        batch = [_of_tool(thread)] * min(AT_ONCE, scale.many_calls - sent)
        running.client.calls("mcpServer/tool/call", batch)
    return {"calls": scale.many_calls / (time.perf_counter() - began)}


def _of_tool(thread: str) -> dict[str, Any]:
    return {"threadId": thread, "server": CALLED, "tool": "echo", "arguments": _ARGUMENTS}


def _turn(running: Running, scale: Scale) -> Values:
    (thread,) = running.client.start_threads(1)
    for _ in range(_WARM_UP):
        running.client.turn(thread)
    return {"turn": median_ms(lambda: running.client.turn(thread), scale.turns)}


def _turn_with_call(running: Running, scale: Scale) -> Values:
    """One without and one with a call in turn, so that both have the same load of others beside them."""
    client = running.client
    (without,) = client.start_threads(1)
    thread = json.loads(bytes(client.call("thread/start", {"modelProvider": "calling"})))["thread"]["id"]
    for _ in range(_WARM_UP):
        client.turn(without)
        client.turn(thread)
    read = bytes(client.call("thread/read", {"threadId": thread, "includeTurns": True}))
    if b'"mcpToolCall"' not in read or b'"failed"' in read:
        raise BenchError(f"the tool was not called: {read[:1000]!r}")
    taken = [(client.turn(without), client.turn(thread)) for _ in range(scale.turns)]
    turn, with_call = (statistics.median(column) * 1e3 for column in zip(*taken, strict=True))
    return {"turn": turn, "with-call": with_call, "beyond": with_call - turn - _alone_ms(scale.calls)}


def _threads(running: Running, scale: Scale) -> Values:
    """What they add to a server that has no thread."""
    client = running.client
    before = _settled(running)
    threads = [thread for _ in range(scale.threads // 10) for thread in client.start_threads(10)]
    unused = _settled(running)
    for start in range(0, len(threads), 10):
        client.turns(threads[start : start + 10])
    used = _settled(running)
    return {
        "unused": unused[0] - before[0],
        "unused-mb": unused[1] - before[1],
        "used": used[0] - before[0],
        "used-mb": used[1] - before[1],
    }


def _rows_of_threads(servers: str) -> tuple[Row, ...]:
    return (
        Row("unused", f"many threads with {servers}: processes, unused", "", "less"),
        Row("unused-mb", f"many threads with {servers}: memory (PSS), unused", "MB", "less"),
        Row("used", f"many threads with {servers}: processes, after a turn in each", "", "less"),
        Row("used-mb", f"many threads with {servers}: memory (PSS), after a turn in each", "MB", "less"),
    )


def _settled(running: Running) -> tuple[int, float]:
    """Processes and their memory in MB, when their number has stopped changing: the real one starts them later."""
    deadline = time.monotonic() + _SETTLE_S
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < 2:
        count = len(family.members(running.pid))
        if count != seen:
            seen, since = count, time.monotonic()
        if since > deadline:
            raise BenchError(f"the number of processes does not stop changing; now there are {count}")
        time.sleep(0.2)
    return seen, family.memory(running.pid, everyone=True).pss


def _alone_ms(calls: int) -> float:
    """A call of the MCP server without anything in between."""
    with subprocess.Popen(PROBE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        to_probe, from_probe = child.stdin, child.stdout
        params = {"name": "echo", "arguments": _ARGUMENTS}
        request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode() + b"\n"

        def call() -> None:
            to_probe.write(request)
            if not from_probe.readline():
                raise BenchError("the MCP server has ended")

        for _ in range(_WARM_UP):
            call()
        taken = median_ms(call, calls)
        to_probe.close()
    return taken


MEASURES: Final = (
    Measure(
        "start",
        (
            Row("thread-start", "`thread/start` with three stdio servers, median", "ms", "less"),
            Row("first-turn", "`thread/start` to the end of the first turn, which has their tools", "ms", "less"),
        ),
        _start,
    ),
    Measure(
        "call",
        (
            Row("call", "`mcpServer/tool/call`, median", "ms", "less"),
            Row("alone", "the same from the MCP server, asked directly", "ms", "less"),
            Row("beyond", "the call beyond the MCP server's own time", "ms", "less"),
        ),
        _call,
    ),
    Measure("calls", (Row("calls", f"calls, {AT_ONCE} at a time", "1/s", "more"),), _many_calls),
    Measure("turn-without", (Row("turn", "a turn in a thread without MCP servers", "ms", "less"),), _turn, servers=()),
    Measure(
        "turn",
        (
            Row("turn", "a turn in a thread with three", "ms", "less"),
            Row("with-call", "a turn in which the model calls a tool", "ms", "less"),
            Row(
                "beyond", "what the call adds, beyond the MCP server's own time (to be under 2 ms)", "ms", "less", 1 / 5
            ),
        ),
        _turn_with_call,
    ),
    Measure("threads", _rows_of_threads("three stdio servers each"), _threads),
    Measure("shared", _rows_of_threads("the same three shared"), _threads, share=True),
)
