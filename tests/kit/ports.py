"""Ports of this machine for servers that are started with a port given."""

from __future__ import annotations

import random
import socket
from pathlib import Path


def free_port() -> int:
    """A free port that stays free: below those that the system gives to connections and to whoever binds port 0."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(lowest - 10_000, lowest), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
