"""The SDKs and the interpreters in which they are tried: a fresh one for every sample, with one SDK on its path.

Whatever happens, nothing that an interpreter started outlives its sample.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench import family
from bench.sdk.plays import ROOT
from bench.servers import BenchError

PLAY_SECONDS: Final = 600.0
_KEPT: Final = ("PATH", "LANG", "TMPDIR", "PYTHONHOME")


@dataclass(frozen=True, slots=True)
class Sdk:
    name: str
    version: str
    module: str
    path: tuple[Path, ...]
    """What its interpreter needs to find it."""


def ours() -> Sdk:
    from treadle import __file__ as place
    from treadle import __version__

    assert place is not None
    return Sdk("ours", f"treadle {__version__}", "treadle", (Path(place).parents[1],))


def real() -> Sdk:
    """The official one, installed first if need be; raises what `scripts.install_peers.ensure` raises."""
    from scripts.install_peers import PEERS, ensure

    peer = PEERS["codex-sdk"]
    return Sdk("real", f"{peer.package} {peer.version}", peer.program, (ensure(peer).parent,))


def play(sdk: Sdk, name: str, **options: Any) -> Mapping[str, float]:
    """What a play gives. Raises `BenchError`."""
    with TemporaryDirectory(prefix="treadle-bench-", ignore_cleanup_errors=True) as folder:
        child = subprocess.Popen(
            [sys.executable, "-m", "bench.sdk.player", sdk.module, name, json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=_environment(sdk, folder),
            text=True,
        )
        try:
            output, errors = child.communicate(timeout=PLAY_SECONDS)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{sdk.version}: {name} took over {PLAY_SECONDS:g} s") from None
        finally:
            family.kill(family.members(child.pid))
            child.wait()
    if child.returncode != 0:
        raise BenchError(f"{sdk.version}: {name} could not be measured: {errors[-3000:].strip()}")
    values: dict[str, float] = json.loads(output)
    return values


def start_seconds(sdk: Sdk, program: str) -> float:
    """From the start of an interpreter that runs this to its end."""
    with TemporaryDirectory(prefix="treadle-bench-") as folder:
        environment = _environment(sdk, folder)
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment,
        )
        seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise BenchError(f"{sdk.version}: {program!r} failed: {done.stderr.decode(errors='replace')[-2000:]}")
    return seconds


def _environment(sdk: Sdk, home: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | {"HOME": home, "PYTHONPATH": os.pathsep.join(map(str, (*sdk.path, ROOT)))}
