"""The facts without which a number means nothing."""

from __future__ import annotations

import os
import platform
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from bench.servers import Server


def facts(servers: Sequence[Server]) -> Mapping[str, str]:
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    build = "an optimised build" if optimised else "built without --enable-optimizations"
    return {
        "cpu": f"{os.cpu_count()} cores, {_cpu_model()}",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}, {build}",
        "libraries": ", ".join(f"{name} {_version(name)}" for name in ("msgspec", "pybase64", "uvloop")),
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        **{server.name: server.version for server in servers},
    }


def _cpu_model() -> str:
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
