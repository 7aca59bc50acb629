"""The filter, run by an interpreter of its own, for both machines: what does it answer to which call?"""

from __future__ import annotations

import errno
import os
import struct

import pytest

from treadle.errors import ExecError
from treadle.execution import CALLS, MACHINES, filter_program

ALLOWED, DENIED, KILLED = 0x7FFF0000, 0x00050001, 0x80000000
UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK = 1, 2, 10, 16, 17, 38, 40
STREAM, DGRAM, RAW, SEQPACKET, CLOEXEC = 1, 2, 3, 5, 0x80000
SOMEWHERE = 0x7FFF_0000_0000  # a pointer whose low half is zero
READ = {"x86_64": 0, "aarch64": 63}


def answer(program: bytes, audit: int, number: int, *arguments: int) -> int:
    padded = [value & (2**64 - 1) for value in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("<IIQ6Q", number, audit, 0, *padded)
    steps = list(struct.iter_unpack("<HBBI", program))
    place = loaded = 0
    while True:
        code, yes, no, value = steps[place]
        place += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from("<I", data, value)
            case 0x54:
                loaded &= value
            case 0x15:
                place += yes if loaded == value else no
            case 0x35:
                place += yes if loaded >= value else no
            case 0x45:
                place += yes if loaded & value else no
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.fixture(params=list(MACHINES))
def machine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def denies(
    machine: str,
    call: str,
    *arguments: int,
    network: bool = False,
    truncate: bool = True,
    namespaces: bool = True,
) -> bool:
    program = filter_program(network=network, truncate=truncate, namespaces=namespaces, machine=machine)
    audit, column = MACHINES[machine]
    given = answer(program, audit, CALLS[call][column], *arguments)
    assert given in (ALLOWED, DENIED)
    return given == DENIED


def test_an_ordinary_call_is_allowed_and_another_machine_is_not(machine: str) -> None:
    program = filter_program(network=False, truncate=False, namespaces=False, machine=machine)
    audit, _ = MACHINES[machine]
    assert answer(program, audit, READ[machine]) == ALLOWED
    assert answer(program, 0x40000003, READ[machine]) == KILLED  # i386
    assert answer(program, audit, 0x40000000 + READ[machine]) == DENIED  # x32


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("namespaces", [False, True])
def test_some_calls_are_never_allowed(machine: str, network: bool, namespaces: bool) -> None:
    keys, rings = ("add_key", "request_key", "keyctl"), ("io_uring_setup", "io_uring_enter", "io_uring_register")
    for call in (*keys, *rings, "bpf", "perf_event_open", "userfaultfd", "open_by_handle_at"):
        assert denies(machine, call, network=network, namespaces=namespaces)


def test_without_network_there_are_no_sockets(machine: str) -> None:
    for family in (UNIX, INET, INET6, NETLINK, VSOCK):
        assert denies(machine, "socket", family, STREAM, 0)
    assert denies(machine, "connect", 3)
    assert denies(machine, "bind", 3)


def test_with_network_there_is_the_internet(machine: str) -> None:
    def refused(*arguments: int) -> bool:
        return denies(machine, "socket", *arguments, network=True)

    for family in (INET, INET6):
        assert not refused(family, STREAM | CLOEXEC, 0)
        assert not refused(family, DGRAM, 17)
    assert not refused(NETLINK, RAW | CLOEXEC, 0)
    assert refused(NETLINK, RAW, 12)  # NETLINK_NETFILTER
    for family in (UNIX, PACKET, ALG, VSOCK, UNIX + 2**32):
        assert refused(family, STREAM, 0)
    assert not denies(machine, "connect", 3, network=True)
    assert not denies(machine, "bind", 3, network=True)


@pytest.mark.parametrize("network", [False, True])
def test_pairs_are_connected_for_good(machine: str, network: bool) -> None:
    for kind in (STREAM, SEQPACKET, STREAM | CLOEXEC):
        assert not denies(machine, "socketpair", UNIX, kind, network=network)
    for kind in (DGRAM, RAW, DGRAM | CLOEXEC, DGRAM + 2**32):
        assert denies(machine, "socketpair", UNIX, kind, network=network)
    assert denies(machine, "socketpair", INET, STREAM, network=network)


def test_nothing_is_pushed_into_a_terminal(machine: str) -> None:
    for request in (0x5412, 0x541C, 0x5412 + 2**32):
        assert denies(machine, "ioctl", 0, request, network=True)
    assert not denies(machine, "ioctl", 0, 0x5413)


CHANGES = ("chmod", "fchmod", "fchmodat", "fchmodat2", "file_setattr", "utime", "utimes", "futimesat", "utimensat")


def test_modes_and_times_are_changed_only_where_something_can_be_written(machine: str) -> None:
    audit, column = MACHINES[machine]
    for changes in (False, True):
        program = filter_program(network=True, truncate=True, namespaces=False, changes=changes, machine=machine)
        for number in (CALLS[call][column] for call in CHANGES):
            assert number < 0 or answer(program, audit, number) == (ALLOWED if changes else DENIED)


@pytest.mark.parametrize(("user", "owners"), [(0, 0x00050000), (1000, DENIED)])
def test_owners_and_attributes_stay_where_no_mount_decides(
    machine: str, monkeypatch: pytest.MonkeyPatch, user: int, owners: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    audit, column = MACHINES[machine]
    for namespaces in (False, True):
        program = filter_program(network=True, truncate=True, namespaces=namespaces, machine=machine)
        for call, row in CALLS.items():
            if row[column] >= 0 and ("xattr" in call or "chown" in call):
                wanted = owners if "chown" in call else 0x00050000 | errno.EOPNOTSUPP
                assert answer(program, audit, row[column]) == (ALLOWED if namespaces else wanted)
        for request in (0x40086602, 0x401C5820):
            assert denies(machine, "ioctl", 3, request, namespaces=namespaces) == (not namespaces)


def test_no_file_becomes_setuid(machine: str) -> None:
    calls = (
        ("fchmod", (3,)),
        ("fchmodat", (-100, SOMEWHERE)),
        ("fchmodat2", (-100, SOMEWHERE)),
        ("chmod", (SOMEWHERE,)),
    )
    for call, before in calls:
        if CALLS[call][MACHINES[machine][1]] >= 0:
            assert denies(machine, call, *before, 0o4755)
            assert not denies(machine, call, *before, 0o2755)


@pytest.mark.parametrize("truncate", [False, True])
def test_no_file_is_made_setuid(machine: str, truncate: bool) -> None:
    calls = [("openat", (-100, SOMEWHERE)), *([("open", (SOMEWHERE,))] if machine == "x86_64" else [])]
    for call, before in calls:
        for flags in (os.O_CREAT | os.O_WRONLY, os.O_TMPFILE | os.O_RDWR):
            assert denies(machine, call, *before, flags, 0o4755, truncate=truncate)
            assert not denies(machine, call, *before, flags, 0o755, truncate=truncate)
        assert not denies(machine, call, *before, os.O_RDWR, 0o4755, truncate=truncate)  # what is there is not made
    old = [("mknod", (SOMEWHERE,)), ("creat", (SOMEWHERE,))] if machine == "x86_64" else []
    for call, before in [("mknodat", (-100, SOMEWHERE)), *old]:
        assert denies(machine, call, *before, 0o104755)
        assert not denies(machine, call, *before, 0o100755)


def test_a_call_that_cannot_be_looked_into_is_not_there(machine: str) -> None:
    program = filter_program(network=True, truncate=True, namespaces=True, machine=machine)
    audit, column = MACHINES[machine]
    assert answer(program, audit, CALLS["openat2"][column]) == 0x00050000 | errno.ENOSYS


def test_shared_memory_and_queues_need_a_namespace(machine: str) -> None:
    for call in ("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl"):
        assert denies(machine, call, namespaces=False)
        assert not denies(machine, call, namespaces=True)
    for call in ("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"):
        assert denies(machine, call, namespaces=False)
        assert not denies(machine, call, namespaces=True)


def test_limits_of_other_processes_and_the_tag_stay(machine: str) -> None:
    def refused(*arguments: int, namespaces: bool = False) -> bool:
        return denies(machine, "prlimit64", *arguments, namespaces=namespaces)

    assert refused(4711, 7, SOMEWHERE, 0)
    assert refused(4711, 7, 4096, 0)
    assert not refused(4711, 7, 0, SOMEWHERE)
    assert not refused(0, 7, SOMEWHERE, 0)
    assert refused(0, 10, SOMEWHERE, 0)
    assert not refused(0, 10, 0, SOMEWHERE)
    assert not refused(0, 10, SOMEWHERE, 0, namespaces=True)
    assert denies(machine, "setrlimit", 10, SOMEWHERE, namespaces=False)
    assert not denies(machine, "setrlimit", 7, SOMEWHERE, namespaces=False)


def test_truncate_is_left_to_landlock_where_it_can(machine: str) -> None:
    assert denies(machine, "truncate", SOMEWHERE, 0, truncate=False)
    assert not denies(machine, "truncate", SOMEWHERE, 0, truncate=True)
    calls = [("openat", (-100, SOMEWHERE)), *([("open", (SOMEWHERE,))] if machine == "x86_64" else [])]
    for call, before in calls:
        assert denies(machine, call, *before, os.O_RDONLY | os.O_TRUNC, truncate=False)
        assert not denies(machine, call, *before, os.O_RDONLY | os.O_TRUNC, truncate=True)
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_TRUNC | os.O_CREAT):
            assert not denies(machine, call, *before, flags, truncate=False)


def test_no_filter_for_an_unknown_machine() -> None:
    with pytest.raises(ExecError, match="riscv64"):
        filter_program(network=False, truncate=True, namespaces=True, machine="riscv64")
