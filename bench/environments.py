"""`python -m bench environments`: what a thread on an exec-server costs over one on this machine, next to the real
codex on an exec-server of its own. Each measure drives a fresh app-server, with fresh exec-servers on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from bench import machine, page, report, servers
from bench.app_server import programs
from bench.app_server.__main__ import servers_of
from bench.app_server.mock import running_mock
from bench.measures import Row
from bench.servers import BenchError, Server
from bench.slow_link import slow_link

LOCAL, SOCKET, UNIX, SLOW = "local", "socket", "unix", "slow"
OVER_LOCAL_MS: Final = 1.5  # what a command over loopback may cost
LINK_S: Final = 0.02  # how long a round trip takes on the slow link
_WARM_UP: Final = 2
# What was looked at is not looked at again for a second (`FRESH_S`): a person's turns are further apart.
_PAUSE_S: Final = 1.1
_SKILLS: Final = 20
_LAST_WORDS: Final = "these are the last words\n"

Values: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Scale:
    turns: int
    commands: int
    """Of a turn, one after another."""
    concurrency: int
    output_mb: int
    project_turns: int


FULL: Final = Scale(turns=6, commands=20, concurrency=32, output_mb=200, project_turns=5)
QUICK: Final = Scale(turns=4, commands=5, concurrency=32, output_mb=50, project_turns=2)


@dataclass(frozen=True, slots=True)
class Stage:
    """An app-server with a project and its environments; `places` are the parameters of a thread in each."""

    up: programs.Running
    places: Mapping[str, Mapping[str, Any]]
    scale: Scale

    def threads(self, place: str, count: int = 1) -> list[str]:
        return self.up.client.start_threads(count, params=self.places[place])

    def peak_mb(self) -> float:
        """The most resident memory that the app-server has had."""
        for line in Path(f"/proc/{self.up.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise BenchError("this kernel does not tell the peak of a process")


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    rows: tuple[Row, ...]
    run: Callable[[Stage], Values]
    plays: Callable[[Scale, Path], str]
    """What the model does in each turn, as `bench.app_server.mock` reads it."""
    places: tuple[str, ...] = (LOCAL, SOCKET)
    only_ours: bool = False


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench environments", description=__doc__)
    parser.add_argument("--rounds", type=page.positive, default=3, metavar="N", help="how often it is measured")
    parser.add_argument("--quick", action="store_true", help="smaller amounts: to see that it works")
    parser.add_argument("--only", nargs="*", choices=[measure.name for measure in MEASURES], help="only these measures")
    parser.add_argument("--without-real", action="store_true", help="only ours: no installation, no ratios")
    page.add_option(parser)
    options = parser.parse_args(arguments)
    taking_part = servers_of(without_real=options.without_real)
    measures = [measure for measure in MEASURES if not options.only or measure.name in options.only]
    facts = machine.facts(taking_part)
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), file=sys.stderr)
    samples = report.Samples()
    scale = QUICK if options.quick else FULL
    try:
        with running_mock() as model_url:
            for number in range(options.rounds):
                for measure in measures:
                    print(f"round {number + 1} of {options.rounds}: {measure.name}", file=sys.stderr, flush=True)
                    for server in taking_part if number % 2 == 0 else reversed(taking_part):
                        if server.name == report.OURS or not measure.only_ours:
                            samples.add(measure, server.name, asyncio.run(_measured(measure, server, model_url, scale)))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    shown = list(report.lines(measures, samples))
    text = "\n\n".join([report.explained(options.rounds), report.table(shown), *_over_local(samples)])
    print(f"\n{text}")
    if options.page:
        page.write_part("environments", facts, text)
    return 0


def _over_local(samples: report.Samples) -> Iterator[str]:
    """How much a command costs over a local one, against what it may."""
    for measure, way, row in (("command", "a WebSocket", SOCKET), ("command-unix", "a Unix socket", UNIX)):
        local, there = (samples.get(measure, place, report.OURS) for place in (LOCAL, row))
        if there:
            over = statistics.median(one - other for one, other in zip(there, local, strict=True))
            verdict = "reached" if over <= OVER_LOCAL_MS else "missed"
            yield f"A command over {way} takes {over:.2f} ms longer than here (target: ≤ {OVER_LOCAL_MS:g}): {verdict}."


async def _measured(measure: Measure, server: Server, model_url: str, scale: Scale) -> Values:
    with TemporaryDirectory(prefix="treadle-bench-") as folder, programs.home_for(model_url) as home:
        played = measure.plays(scale, Path(folder))
        config = programs.config_for(f"{model_url}/{played}").replace("mock-model", "gpt-5.5")
        (home / "config.toml").write_text(config)
        project = make_project(Path(folder) / "project")
        executor = servers.ours() if server.name == report.OURS else servers.real()
        async with AsyncExitStack() as stack:
            urls = {}
            if SOCKET in measure.places:
                urls[SOCKET] = (await stack.enter_async_context(servers.running(executor))).url
            if UNIX in measure.places:
                listen = f"unix://{folder}/socket"
                here = replace(executor, command=(*executor.command[:-1], listen))
                urls[UNIX] = (await stack.enter_async_context(servers.running(here))).url
            if SLOW in measure.places:
                port = urlsplit(urls[SOCKET]).port
                assert port is not None
                slow = stack.enter_context(slow_link(port, LINK_S / 2))
                urls[SLOW] = urls[SOCKET].replace(f":{port}", f":{slow}")
            up = stack.enter_context(programs.running(server, home))
            places: dict[str, Mapping[str, Any]] = {LOCAL: {"cwd": str(project)}}
            for name, url in urls.items():
                up.client.call("environment/add", {"environmentId": name, "execServerUrl": url})
                there = {"environmentId": name, "cwd": str(project)}
                places[name] = {"cwd": str(project), "environments": [there]}
            return measure.run(Stage(up, places, scale))


def make_project(folder: Path) -> Path:
    """A repository with instructions and skills."""
    for number in range(_SKILLS):
        skill = folder / ".agents" / "skills" / f"skill-{number}"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(f"---\nname: skill-{number}\ndescription: Does thing {number}.\n---\nDo it.\n")
    (folder / "AGENTS.md").write_text("Be brief.\n")
    who = ("-c", "user.name=Bench", "-c", "user.email=bench@example.com")
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), *who, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    return folder


# --- the measures -----------------------------------------------------------------------------------------------------


def _commands(scale: Scale, folder: Path) -> str:
    return f"x{scale.commands}-{b'true'.hex()}"


def _few(scale: Scale) -> int:
    return scale.commands // 4


def _few_commands(scale: Scale, folder: Path) -> str:
    return f"x{_few(scale)}-{b'true'.hex()}"


def _command(stage: Stage) -> Values:
    values = _in_turn(stage)
    return {**values, "rate": 1e3 / values[SOCKET]}


def _in_turn(stage: Stage) -> Values:
    """Milliseconds of a command, with the request to the model that follows; turn by turn in each place."""
    threads = {place: stage.threads(place)[0] for place in stage.places}
    taken: dict[str, list[float]] = {place: [] for place in stage.places}
    for number in range(_WARM_UP + stage.scale.turns):
        for place, thread in threads.items():
            seconds = stage.up.client.turn(thread)
            if number >= _WARM_UP:
                taken[place].append(seconds * 1e3 / stage.scale.commands)
    return {place: statistics.median(times) for place, times in taken.items()}


def _at_a_time(stage: Stage) -> Values:
    """Commands per second of many threads that all work in one place."""
    found = {}
    for place in stage.places:
        threads = stage.threads(place, stage.scale.concurrency)
        stage.up.client.turns(threads)
        seconds = min(stage.up.client.turns(threads) for _ in range(2))
        found[place] = len(threads) * _few(stage.scale) / seconds
    return found


def _cat(scale: Scale, folder: Path) -> str:
    path = folder / "output"
    with path.open("wb") as file:
        for _ in range(scale.output_mb):
            file.write(b"%098d\n" % 0 * 10_101 + b"\n")
        file.write(_LAST_WORDS.encode())
    return f"x1-{f'cat {path}'.encode().hex()}"


def _output(place: str) -> Callable[[Stage], Values]:
    def run(stage: Stage) -> Values:
        before = stage.peak_mb()
        seconds, item = stage.up.client.command_turn(stage.threads(place)[0])
        if item.exit_code != 0 or not (item.aggregated_output or "").endswith(_LAST_WORDS):
            raise BenchError(f"the command is {item.status} with {item.exit_code}, and its output has no end")
        return {"rate": stage.scale.output_mb / seconds, "grown": stage.peak_mb() - before}

    return run


def _project(stage: Stage) -> Values:
    """A turn without a command, in a project in which nothing has changed."""
    threads = {place: stage.threads(place)[0] for place in stage.places}
    taken: dict[str, list[float]] = {place: [] for place in stage.places}
    for number in range(_WARM_UP + stage.scale.project_turns):
        time.sleep(_PAUSE_S)
        for place, thread in threads.items():
            seconds = stage.up.client.turn(thread)
            if number >= _WARM_UP:
                taken[place].append(seconds * 1e3)
    values = {place: statistics.median(times) for place, times in taken.items()}
    return {**values, "trips": (values[SLOW] - values[SOCKET]) / (LINK_S * 1e3)}


def _commands_far(stage: Stage) -> Values:
    values = _in_turn(stage)
    return {"trips": (values[SLOW] - values[SOCKET]) / (LINK_S * 1e3)}


MEASURES: Final = (
    Measure(
        "command",
        (
            Row(LOCAL, "a command of a thread (`true`), here", "ms", "less"),
            Row(SOCKET, "the same on an exec-server, over a WebSocket", "ms", "less"),
            Row("rate", "commands of a thread on an exec-server, one after another", "1/s", "more", 5),
        ),
        _command,
        _commands,
    ),
    Measure(
        "command-unix",
        (
            Row(LOCAL, "a command of a thread, here, next to", "ms", "less"),
            Row(UNIX, "the same on an exec-server, over a Unix socket", "ms", "less"),
        ),
        _in_turn,
        _commands,
        (LOCAL, UNIX),
        only_ours=True,
    ),
    Measure(
        "far", (Row("trips", "round trips of a command", "", "less"),), _commands_far, _commands, (LOCAL, SOCKET, SLOW)
    ),
    Measure(
        "at-a-time",
        (
            Row(LOCAL, "commands of 32 threads at a time, here", "1/s", "more"),
            Row(SOCKET, "the same on one exec-server", "1/s", "more", 5),
        ),
        _at_a_time,
        _few_commands,
    ),
    Measure(
        "output-here",
        (
            Row("rate", "output of a command, 200 MB, here", "MB/s", "more"),
            Row("grown", "what the app-server's memory grows by meanwhile", "MB", "less"),
        ),
        _output(LOCAL),
        _cat,
    ),
    Measure(
        "output",
        (
            Row("rate", "output of a command, 200 MB, from an exec-server", "MB/s", "more"),
            Row("grown", "what the app-server's memory grows by meanwhile", "MB", "less"),
        ),
        _output(SOCKET),
        _cat,
    ),
    Measure(
        "project",
        (
            Row(LOCAL, "a turn in a project with 20 skills, without a command, here", "ms", "less"),
            Row(SOCKET, "the same on an exec-server", "ms", "less"),
            Row("trips", "round trips of that turn", "", "less"),
        ),
        _project,
        lambda scale, folder: "d1",
        (LOCAL, SOCKET, SLOW),
    ),
)
