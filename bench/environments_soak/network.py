"""Machines as far as a network is concerned: a namespace each, and a wire to it that can be slow, lossy or broken.

    this namespace ── tun ── `Wire`, in this process ── tun `eth0` ── the namespace of the machine

The kernel of most containers has no netem, so that packets are carried from one tun device to the other by hand. All of
this is inside of namespaces that the program made for itself at its start (`inside_namespaces`), and is gone with them.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

TOOLS: Final = ("ip", "nft", "nsenter", "setpriv", "unshare", "openssl")
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_NO_PI: Final = 0x1001
_MAX_PACKET: Final = 1 << 16
_MAX_UNDERWAY: Final = 2000  # packets on a wire; more are lost, as in a full router
_DELAY_S: Final = 0.002


def missing() -> str | None:
    """Why there can be no machines here; None when there can."""
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"missing: {', '.join(lacking)} (apt install iproute2 nftables util-linux openssl)"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun cannot be opened"
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True, timeout=60, check=False)
    return None if tried.returncode == 0 else f"no namespaces can be made: {tried.stderr.strip()}"


# It ends with the program that began it, and everything in it with it.
_UNSHARE: Final = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
# The shell is the first process of the namespace, and reaps whatever is left behind in it.
_FIRST: Final = 'mount -t tmpfs none /run && ip link set lo up && "$@"; exit $?'


def inside_namespaces(command: Sequence[str]) -> list[str]:
    """The command with a network, mounts and processes of its own: whatever happens, nothing of it outlives it."""
    return [*_UNSHARE, "sh", "-c", _FIRST, "sh", *command]


class Wire:
    """Carries packets both ways. Its fields may be changed at any time."""

    def __init__(self, near: int, far: int) -> None:
        self.ends: Final = {near: far, far: near}
        self._near = near
        self.heal()

    def heal(self) -> None:
        self.delay_s = _DELAY_S
        self.jitter_s = 0.0
        self.loss = 0.0
        self.silent: frozenset[str] = frozenset()
        """The directions, `there` and `back`, in which nothing arrives."""

    def direction(self, end: int) -> str:
        return "there" if end == self._near else "back"


class Network:
    """The machines by name. `prefix` is part of what its namespaces and devices are called."""

    def __init__(self, prefix: str, names: Sequence[str], seed: int) -> None:
        self._prefix = prefix
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._chance = random.Random(seed)
        self.wires: dict[str, Wire] = {}
        self._ends: dict[int, Wire] = {}
        self._ended = threading.Event()

    def near(self, name: str) -> str:
        """The address of this side, for a machine."""
        return f"10.77.{self._numbers[name]}.1"

    def far(self, name: str) -> str:
        return f"10.77.{self._numbers[name]}.2"

    def namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def inside(self, name: str) -> list[str]:
        """What a command is put behind to run on a machine."""
        return ["nsenter", f"--net=/run/netns/{self.namespace(name)}", "--"]

    @contextmanager
    def up(self) -> Iterator[None]:
        thread = threading.Thread(target=self._carry, name="wires", daemon=True)
        try:
            _run("nft", "add table ip soak")
            for name in self._numbers:
                self._make(name)
            thread.start()
            yield
        finally:
            self._ended.set()
            if thread.ident is not None:
                thread.join()
            for end in self._ends:
                os.close(end)
            for name in self._numbers:
                subprocess.run(["ip", "netns", "del", self.namespace(name)], capture_output=True, check=False)

    def _make(self, name: str) -> None:
        space = self.namespace(name)
        near_name, far_name = f"near{self._numbers[name]}", f"far{self._numbers[name]}"
        near, far = _tun(near_name), _tun(far_name)
        wire = self.wires[name] = Wire(near, far)
        self._ends |= {near: wire, far: wire}
        _run("nft", f"add chain ip soak {name} {{ type filter hook output priority 0; }}")
        _run("ip", "netns", "add", space)
        _run("ip", "link", "set", far_name, "netns", space, "name", "eth0")
        _run("ip", "-n", space, "addr", "add", self.far(name), "peer", self.near(name), "dev", "eth0")
        _run("ip", "addr", "add", self.near(name), "peer", self.far(name), "dev", near_name)
        for words in (
            ["-n", space, "link", "set", "lo"],
            ["-n", space, "link", "set", "eth0"],
            ["link", "set", near_name],
        ):
            _run("ip", *words, "up")

    # --- faults ---

    def link(self, name: str, state: str) -> None:
        """The link of the machine: `down`, or `up` again."""
        _run("ip", "-n", self.namespace(name), "link", "set", "eth0", state)

    def reset(self, name: str) -> None:
        """Whatever is sent to a machine is answered with a reset: this side learns of it, the machine does not."""
        _run("nft", f"add rule ip soak {name} ip daddr {self.far(name)} meta l4proto tcp reject with tcp reset")
        self.wires[name].silent = frozenset(("back",))

    def heal(self, name: str) -> None:
        _run("nft", f"flush chain ip soak {name}")
        self.wires[name].heal()
        self.link(name, "up")

    # --- carrying ---

    def _carry(self) -> None:
        poll = select.poll()
        for end in self._ends:
            poll.register(end, select.POLLIN)
        underway: list[tuple[float, int, int, bytes]] = []
        order = itertools.count()
        while not self._ended.is_set():
            patience = min(max(underway[0][0] - time.monotonic(), 0.0), 0.05) if underway else 0.05
            for end, _ in poll.poll(patience * 1000):
                self._take(end, underway, order)
            now = time.monotonic()
            while underway and underway[0][0] <= now:
                _, _, end, packet = heapq.heappop(underway)
                try:
                    os.write(end, packet)
                except OSError:  # the link is down there
                    continue

    def _take(self, end: int, underway: list[tuple[float, int, int, bytes]], order: Iterator[int]) -> None:
        wire = self._ends[end]
        for _ in range(64):
            try:
                packet = os.read(end, _MAX_PACKET)
            except OSError:  # nothing more, or the link is down here
                return
            lost = wire.direction(end) in wire.silent or self._chance.random() < wire.loss
            if lost or len(underway) >= _MAX_UNDERWAY:
                continue
            due = time.monotonic() + wire.delay_s + self._chance.random() * wire.jitter_s
            heapq.heappush(underway, (due, next(order), wire.ends[end], packet))


def _tun(name: str) -> int:
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN_NO_PI))
    return end


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        print(f"{' '.join(words)}: {done.stderr.strip()}", file=sys.stderr)
        done.check_returncode()
