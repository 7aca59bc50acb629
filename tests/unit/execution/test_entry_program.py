"""The machine code: run here as what this machine is, and compared for ARM64 with what an emulator of it has run."""

from __future__ import annotations

import os
import struct
import subprocess

import pytest

from treadle.execution import RESULT, EntryProgram, open_sealed


def run(program: EntryProgram, **env: str) -> subprocess.CompletedProcess[bytes]:
    descriptor = open_sealed("program", program.file())
    try:
        return subprocess.run([f"/proc/self/fd/{descriptor}"], pass_fds=[descriptor], env=env, capture_output=True)
    finally:
        os.close(descriptor)


def test_what_is_handed_over_cannot_be_changed() -> None:
    """Neither through the descriptor nor by another program of the user, which finds it below /proc."""
    descriptor = open_sealed("program", b"echo")
    try:
        opened = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
        for number in (descriptor, opened):
            with pytest.raises(PermissionError):
                os.pwrite(number, b"evil", 0)
            with pytest.raises(PermissionError):
                os.truncate(number, 0)
        os.close(opened)
        assert os.pread(descriptor, 9, 0) == b"echo"
    finally:
        os.close(descriptor)


def test_it_becomes_the_command_with_no_environment_but_its_own() -> None:
    program = EntryProgram()
    program.execute("/nowhere", ["x"], {})
    program.execute("/usr/bin/env", ["env", "-0"], {"A": "b c", "ODD-näme": os.fsdecode(b"\xff")})
    done = run(program, LEFT="over")
    assert done.stdout == b"A=b c\0ODD-n\xc3\xa4me=\xff\0"


def test_the_result_of_a_call_is_the_argument_of_the_next() -> None:
    program = EntryProgram()
    program.call("openat", -100, b"/dev/null\0", os.O_RDWR, failure="opening failed")
    program.call("dup3", RESULT, 20, 0, failure="copying failed")
    program.execute("/bin/readlink", ["readlink", "/proc/self/fd/20"], {})
    assert run(program).stdout == b"/dev/null\n"


def test_a_call_that_fails_ends_it() -> None:
    program = EntryProgram()
    program.call("openat", -100, b"/nowhere\0", 0, failure="opening /nowhere failed")
    program.execute("/bin/echo", ["echo", "ran"], {})
    done = run(program)
    said = b"treadle sandbox: the command was not run: opening /nowhere failed\n"
    assert (done.returncode, done.stdout, done.stderr) == (125, b"", said)


def test_a_command_that_cannot_be_executed_has_its_status() -> None:
    program = EntryProgram()
    program.execute("/nowhere", ["x"], {})
    program.stop(127, "x: not found")
    done = run(program)
    assert (done.returncode, done.stderr) == (127, b"treadle sandbox: x: not found\n")


def test_arm64() -> None:
    program = EntryProgram("aarch64")
    program.call("dup3", RESULT, 20, 0x12345678, failure="")
    file = program.file()
    kind, machine, _, start = struct.unpack_from("<HHIQ", file, 16)
    assert (kind, machine, start % 4) == (2, 183, 0)
    words = struct.unpack_from("<16I", file, start - 0x400000)
    loads = [0xD2800308, 0xF2A00008, 0xF2C00008, 0xF2E00008]  # x8: the number 24
    loads += [0xD2800281, 0xF2A00001, 0xF2C00001, 0xF2E00001]  # x1: 20
    loads += [0xD28ACF02, 0xF2A24682, 0xF2C00002, 0xF2E00002]  # x2: 0x12345678
    assert list(words[:13]) == [*loads, 0xD4000001]  # svc #0; x0 is left alone
    stop = 4 * (16 + 1) + 4 * (8 + 1)  # `write` with three arguments, `exit_group` with one
    assert words[13] == 0xB6F80000 | (stop // 4 + 1) << 5  # tbz x0, #63


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_program_can_be_long(machine: str) -> None:
    program = EntryProgram(machine)
    program.execute("/bin/true", ["x" * 100_000] * 20, {"A": "y" * 100_000})
    assert len(program.file()) > 2_000_000
