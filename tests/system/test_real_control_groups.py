"""Control groups for clients, on those of the kernel: `real_control_groups` says what is tried."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.processes import DEADLINE_S

PROGRAM = Path(__file__).with_name("real_control_groups.py")


@pytest.mark.this_machine  # it makes control groups of its own, beside those of this machine
def test_what_the_kernel_makes_of_them(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    look = f'mount -t cgroup2 none "{top}" && cat "{top}/cgroup.controllers" && umount "{top}"'
    probe = subprocess.run(["unshare", "-m", "sh", "-c", look], capture_output=True, text=True, timeout=DEADLINE_S)
    if os.geteuid() != 0 or probe.returncode != 0:
        pytest.skip(f"no mount of cgroup2 in a namespace of our own: {probe.stderr.strip()}")
    if "hugetlb" not in probe.stdout.split():
        pytest.skip(f"no controller hugetlb that is free, only {probe.stdout.split()}")
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", sys.executable, str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE_S,
    )
    assert (done.returncode, done.stdout) == (0, "all of it\n"), done.stderr
