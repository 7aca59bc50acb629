"""Real commands under both mechanisms. Where one cannot work, its cases are skipped and say why."""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from kit.sandboxes import usable
from treadle.errors import INVALID_REQUEST, ExecError
from treadle.execution import HOST, LAUNCHER, Confined, Host, Mechanism, PathRule, Policy, Unusable, confine, handing
from treadle.execution.sandbox import confinement, landlock

DEADLINE = 60.0
PYTHON = os.path.realpath(sys.executable)
SYSTEM_PATH = {"PATH": "/usr/bin:/bin"}
SYSTEM_RULES = tuple(PathRule(path, "read") for path in ("/etc", "/usr") if os.path.isdir(path))

CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 30).sendall(b'x')"
DATAGRAM = (
    "import socket, sys; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', int(sys.argv[1])))"
)
UNIX = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
PAIR = (
    "import socket\n"
    "for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):\n"
    "    a, b = socket.socketpair(socket.AF_UNIX, kind)\n"
    "    a.send(b'x')\n"
    "    assert b.recv(1) == b'x'\n"
)


@dataclass(frozen=True)
class Place:
    """A workspace that may be written, next to files that may not."""

    root: Path
    work: Path

    def policy(self, *more: PathRule, network: bool = False) -> Policy:
        rules = {rule.path: rule for rule in (PathRule("/", "read"), PathRule(str(self.work), "write"), *more)}
        return Policy(tuple(rules[path] for path in sorted(rules)), network)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    root = Path(os.path.realpath(tmp_path))
    (root / "work").mkdir()
    return Place(root, root / "work")


def prepare(
    policy: Policy,
    argv: Sequence[str],
    mechanism: Mechanism | None,
    cwd: Path,
    *,
    env: Mapping[str, str] = SYSTEM_PATH,
    arg0: str | None = None,
    tty: bool = False,
) -> Confined:
    confined = confine(policy, argv=argv, arg0=arg0, cwd=str(cwd), env=env, tty=tty, mechanism=mechanism)
    assert confined.sandbox_type == "linuxSeccomp"
    return confined


def started(confined: Confined, cwd: Path) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        handing(confined.argv, confined.handed),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        cwd=cwd,
        env={},
        start_new_session=True,
    )


def finish(confined: Confined, cwd: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    with started(confined, cwd) as process:
        try:
            stdout, stderr = process.communicate(stdin, DEADLINE)
        finally:
            process.kill()
    return subprocess.CompletedProcess(confined.argv, process.returncode, stdout, stderr)


def shell(policy: Policy, script: str, mechanism: Mechanism, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return finish(prepare(policy, ["/bin/sh", "-c", script], mechanism, cwd), cwd)


def python(policy: Policy, mechanism: Mechanism, cwd: Path, *argv: str) -> subprocess.CompletedProcess[bytes]:
    return finish(prepare(policy, [PYTHON, "-I", "-S", "-c", *argv], mechanism, cwd), cwd)


# --- files ---


def test_writes_inside_and_only_there(mechanism: Mechanism, place: Place) -> None:
    script = f"mkdir a && echo hello > a/in && mv a/in b && echo no > {place.root}/out"
    done = shell(place.policy(), script, mechanism, place.work)
    assert done.returncode != 0
    assert (place.work / "b").read_text() == "hello\n"
    assert not (place.root / "out").exists()
    assert b"Read-only file system" in done.stderr or b"Permission denied" in done.stderr


def test_existing_files_outside_stay_as_they_are(mechanism: Mechanism, place: Place) -> None:
    outside = place.root / "outside"
    outside.write_text("precious")
    code = (
        "import os, sys\n"
        "cut, append, move = lambda p: os.truncate(p, 0), lambda p: open(p, 'a'), lambda p: os.rename(p, 'x')\n"
        "for attempt in (os.remove, cut, append, move):\n"
        "    try: attempt(sys.argv[1])\n"
        "    except OSError: pass\n"
        "    else: sys.exit('it worked')\n"
    )
    done = python(place.policy(), mechanism, place.work, code, str(outside))
    assert done.returncode == 0, done.stderr
    assert outside.read_text() == "precious"


def test_an_old_landlock_keeps_the_content_of_files_outside(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not watch truncation, which is then left to the filter."""
    usable("landlock")
    monkeypatch.setattr(HOST, "landlock", lambda: 2)
    outside = place.root / "outside"
    outside.write_text("precious")
    code = (
        "import ctypes, os, sys\n"
        "openat2 = lambda p: ctypes.CDLL(None).syscall(437, -100, p.encode(), (ctypes.c_uint64 * 3)(os.O_TRUNC), 24)\n"
        "on_open, cut = lambda p: os.open(p, os.O_RDONLY | os.O_TRUNC), lambda p: os.truncate(p, 0)\n"
        "for attempt in (on_open, cut, openat2):\n"
        "    try: attempt(sys.argv[1])\n"
        "    except PermissionError: pass\n"
        "with open('inside', 'w') as file: file.write('x')\n"
        "with open('inside', 'w') as file: file.write('y')\n"
    )
    done = python(place.policy(), "landlock", place.work, code, str(outside))
    assert done.returncode == 0, done.stderr
    assert outside.read_text() == "precious"
    assert (place.work / "inside").read_text() == "y"


def test_a_link_out_of_the_workspace_leads_nowhere(mechanism: Mechanism, place: Place) -> None:
    (place.root / "outside").mkdir()
    (place.work / "link").symlink_to(place.root / "outside")
    done = shell(place.policy(), "echo no > link/file", mechanism, place.work)
    assert done.returncode != 0
    assert list((place.root / "outside").iterdir()) == []


def test_read_only(mechanism: Mechanism, place: Place) -> None:
    (place.work / "file").write_text("text")
    done = shell(Policy((PathRule("/", "read"),), network=False), "cat file; echo x > new", mechanism, place.work)
    assert done.stdout == b"text"
    assert done.returncode != 0
    assert not (place.work / "new").exists()


def test_without_a_rule_nothing_can_be_read_or_written(mechanism: Mechanism, place: Place) -> None:
    (place.root / "secret").write_text("hidden")
    (place.work / "file").write_text("text")
    policy = Policy((*SYSTEM_RULES, PathRule(str(place.work), "write")), network=False)
    script = f"cat file; echo x > new; echo x > {place.root}/no && echo wrote; cat {place.root}/secret"
    done = shell(policy, script, mechanism, place.work)
    assert done.stdout == b"text", done.stderr
    assert done.returncode != 0
    assert (place.work / "new").exists()
    assert not (place.root / "no").exists()


def test_a_working_directory_without_a_rule_is_refused(mechanism: Mechanism, place: Place) -> None:
    with pytest.raises(ExecError, match="working directory"):
        prepare(Policy(SYSTEM_RULES, network=False), ["/bin/true"], mechanism, place.work)


def test_a_protected_directory_stays_read_only(bubblewrap: Mechanism, place: Place) -> None:
    (place.work / ".git").mkdir()
    (place.work / ".git/config").write_text("kept")
    policy = place.policy(PathRule(f"{place.work}/.git", "read"))
    script = "cat .git/config; echo x > .git/config; echo x > .git/new; mv .git moved; rm -rf .git; echo y > free"
    done = shell(policy, script, bubblewrap, place.work)
    assert done.stdout == b"kept"
    assert (place.work / "free").read_text() == "y\n"
    assert [entry.name for entry in (place.work / ".git").iterdir()] == ["config"]
    assert (place.work / ".git/config").read_text() == "kept"


def test_a_protected_directory_cannot_be_replaced_by_renaming_its_parent(bubblewrap: Mechanism, place: Place) -> None:
    (place.work / "sub/.git").mkdir(parents=True)
    policy = place.policy(PathRule(f"{place.work}/sub/.git", "read"))
    done = shell(policy, "mv sub other; mkdir -p sub/.git && echo evil > sub/.git/config", bubblewrap, place.work)
    assert done.returncode != 0
    assert list((place.work / "sub/.git").iterdir()) == []
    assert not (place.work / "other").exists()


def test_landlock_refuses_a_protected_directory(place: Place) -> None:
    (place.work / ".git").mkdir()
    with pytest.raises(ExecError, match="Landlock cannot keep") as caught:
        prepare(place.policy(PathRule(f"{place.work}/.git", "read")), ["/bin/true"], usable("landlock"), place.work)
    assert caught.value.code == INVALID_REQUEST


def test_denied_paths_are_hidden_but_for_what_is_granted_below(bubblewrap: Mechanism, place: Place) -> None:
    (place.work / "private/open").mkdir(parents=True)
    (place.work / "private/key").write_text("hidden")
    (place.work / "private/open/note").write_text("shown")
    (place.work / "token").write_text("hidden")
    hidden = (PathRule(f"{place.work}/private", "none"), PathRule(f"{place.work}/token", "none"))
    policy = place.policy(*hidden, PathRule(f"{place.work}/private/open", "read"))
    script = (
        "cat private/open/note; cat private/key token; ls private; echo x > private/new; echo x > token; rm -f token"
    )
    done = shell(policy, script, bubblewrap, place.work)
    assert done.stdout == b"shown"
    assert (place.work / "token").read_text() == "hidden"
    assert sorted(entry.name for entry in (place.work / "private").iterdir()) == ["key", "open"]


def test_a_link_put_in_place_of_a_granted_path_is_not_followed(place: Place) -> None:
    confined = prepare(place.policy(), ["/bin/sh", "-c", "echo x > made"], usable("landlock"), place.root)
    place.work.rename(place.root / "old")
    place.work.symlink_to(place.root)
    done = finish(confined, place.root)
    assert done.returncode == 125
    assert b"replaced" in done.stderr
    assert not (place.root / "made").exists()


def test_a_launcher_that_a_command_changed_is_not_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Treadle may be installed in the virtual environment of the project."""
    usable("landlock")
    launcher = place.work / "launcher.py"
    shutil.copy(LAUNCHER, launcher)
    monkeypatch.setattr(confinement, "LAUNCHER", str(launcher))
    monkeypatch.setattr(landlock, "LAUNCHER", str(launcher))
    monkeypatch.setattr(confinement, "HOST", Host())
    script = f"""echo 'open("{place.root}/victim", "w")' > launcher.py"""
    assert shell(place.policy(), script, "landlock", place.work).returncode == 0
    assert "victim" in launcher.read_text()
    assert shell(place.policy(), "echo fine", "landlock", place.work).stdout == b"fine\n"
    assert not (place.root / "victim").exists()


def test_a_python_that_commands_can_change_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    usable("landlock")
    python_copy = place.work / "python3"
    python_copy.write_text("")
    python_copy.chmod(0o755)
    monkeypatch.setattr(sys, "_base_executable", str(python_copy))
    with pytest.raises(ExecError, match="the command could change it"):
        prepare(place.policy(), ["true"], "landlock", place.work)


def test_the_harmless_devices_work(mechanism: Mechanism, place: Place) -> None:
    script = "echo x > /dev/null && head -c 1 /dev/zero > zero && head -c 1 /dev/urandom > random"
    done = shell(place.policy(), script, mechanism, place.work)
    assert done.returncode == 0, done.stderr


# --- powers ---


def test_no_capabilities(mechanism: Mechanism, place: Place) -> None:
    done = shell(place.policy(), "grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status", mechanism, place.work)
    values = {line.split()[0]: int(line.split()[1], 16) for line in done.stdout.decode().splitlines()}
    if os.geteuid() != 0:
        values.pop("CapBnd:")  # not ours to drop, and without use under no_new_privs
    assert set(values.values()) == {0}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write the kernel's settings in the first place")
def test_root_cannot_change_the_kernel(mechanism: Mechanism, place: Place) -> None:
    code = "import os; os.close(os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY))"
    done = python(place.policy(), mechanism, place.work, code)
    assert done.returncode == 1
    assert b"core_pattern" in done.stderr


# --- network ---


def test_tcp(mechanism: Mechanism, place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        restricted = python(place.policy(), mechanism, place.work, CONNECT, port)
        assert restricted.returncode == 1
        assert b"Operation not permitted" in restricted.stderr
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()
        granted = python(place.policy(network=True), mechanism, place.work, CONNECT, port)
        assert granted.returncode == 0, granted.stderr
        listener.accept()[0].close()


def test_udp(mechanism: Mechanism, place: Place) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        port = str(receiver.getsockname()[1])
        assert python(place.policy(), mechanism, place.work, DATAGRAM, port).returncode == 1
        receiver.settimeout(0)
        with pytest.raises(BlockingIOError):
            receiver.recv(10)
        assert python(place.policy(network=True), mechanism, place.work, DATAGRAM, port).returncode == 0
        receiver.settimeout(DEADLINE)
        assert receiver.recv(10) == b"x"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK])
def test_no_socket_of_any_network(mechanism: Mechanism, place: Place, family: socket.AddressFamily) -> None:
    code = "import socket, sys; socket.socket(int(sys.argv[1]), socket.SOCK_DGRAM)"
    done = python(place.policy(), mechanism, place.work, code, str(int(family)))
    assert done.returncode == 1
    assert b"Operation not permitted" in done.stderr


@pytest.mark.parametrize("network", [False, True])
def test_daemons_behind_socket_files_cannot_be_asked(
    mechanism: Mechanism, place: Place, monkeypatch: pytest.MonkeyPatch, network: bool
) -> None:
    monkeypatch.chdir(place.work)  # a socket's name is limited to about a hundred bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("daemon")
        listener.listen()
        restricted = python(place.policy(network=network), mechanism, place.work, UNIX, "daemon")
        assert restricted.returncode == 1
        assert b"Operation not permitted" in restricted.stderr


@pytest.mark.parametrize("network", [False, True])
def test_socket_pairs_work(mechanism: Mechanism, place: Place, network: bool) -> None:
    done = python(place.policy(network=network), mechanism, place.work, PAIR)
    assert done.returncode == 0, done.stderr


def test_with_network_names_and_addresses_can_be_looked_up(mechanism: Mechanism, place: Place) -> None:
    code = "import socket; assert socket.if_nameindex(); assert socket.getaddrinfo('localhost', 80)"
    done = python(place.policy(network=True), mechanism, place.work, code)
    assert done.returncode == 0, done.stderr


# --- what programs do every day, and a filter must not break ---


def test_modes_can_be_changed_inside(mechanism: Mechanism, place: Place) -> None:
    done = shell(
        place.policy(), "mkdir d && chmod 2775 d && touch f && chmod 0755 f && stat -c %a d f", mechanism, place.work
    )
    assert done.stdout.split() == [b"2775", b"755"], done.stderr


def test_modes_of_what_is_hidden_are_put_back_when_all_of_a_command_has_ended(place: Place) -> None:
    """What it left behind may change them once more after its own exit."""
    hidden = place.root / "hidden"
    hidden.mkdir(mode=0o700)
    policy = place.policy(PathRule(str(hidden), "none"))
    confined = prepare(policy, ["true"], usable("landlock"), place.work)
    for end in (confined.repair, confined.release):
        hidden.chmod(0o755)
        end()
        assert hidden.stat().st_mode & 0o777 == 0o700


def test_limits_can_be_lowered_and_read(mechanism: Mechanism, place: Place) -> None:
    code = (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "assert resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE) == (100, 100)\n"
    )
    done = python(place.policy(), mechanism, place.work, code)
    assert done.returncode == 0, done.stderr


def test_a_child_can_be_traced(mechanism: Mechanism, place: Place) -> None:
    code = (
        "import ctypes, os, signal\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "child = os.fork()\n"
        "if not child: signal.pause()\n"
        "traced = libc.ptrace(16, child, None, None)\n"  # PTRACE_ATTACH
        "os.kill(child, 9)\n"
        "assert traced == 0, os.strerror(ctypes.get_errno())\n"
    )
    done = python(place.policy(), mechanism, place.work, code)
    assert done.returncode == 0, done.stderr


# --- the process ---


def test_exit_codes(mechanism: Mechanism, place: Place) -> None:
    assert shell(place.policy(), "exit 7", mechanism, place.work).returncode == 7
    assert shell(place.policy(), "kill -9 $$", mechanism, place.work).returncode in (137, -9)
    missing = finish(prepare(place.policy(), ["no-such-program"], mechanism, place.work), place.work)
    assert missing.returncode == 127
    assert b"no-such-program" in missing.stderr


@pytest.mark.parametrize("arg0", [None, "renamed"])
def test_the_environment_is_exactly_the_given_one(mechanism: Mechanism, place: Place, arg0: str | None) -> None:
    plain = {**SYSTEM_PATH, "EMPTY": "", "LINES": "a\nb", "RAW": os.fsdecode(b"\xff\xfe"), "LC_ALL": "C"}
    env = {**plain, "LD_LIBRARY_PATH": "/nowhere", "BASH_FUNC_f%%": "() { :; }", "IFS": "x", "-x": "dash"}
    confined = prepare(place.policy(), ["/usr/bin/env", "-0"], mechanism, place.work, env=env, arg0=arg0)
    done = finish(confined, place.work)
    assert sorted(done.stdout.split(b"\0")[:-1]) == sorted(os.fsencode(f"{key}={value}") for key, value in env.items())


@pytest.mark.parametrize("arg0", [None, "renamed"])
def test_no_value_of_a_variable_stands_on_a_command_line(
    mechanism: Mechanism, place: Place, marker: str, arg0: str | None
) -> None:
    """Other users can read those."""
    names = ("PLAIN", "LD_LIBRARY_PATH", "PYTHONPATH", "PWD", "odd-name")
    env = {**SYSTEM_PATH, **dict.fromkeys(names, f"/{marker}")}
    confined = prepare(place.policy(), ["cat"], mechanism, place.work, env=env, arg0=arg0)
    assert not [word for word in confined.argv if marker in word]
    with started(confined, place.work) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"x")
            process.stdin.flush()
            assert process.stdout.read(1) == b"x"  # so it runs, with all that came before
            for name in filter(str.isdigit, os.listdir("/proc")):
                with suppress(FileNotFoundError, ProcessLookupError):
                    assert marker.encode() not in Path(f"/proc/{name}/cmdline").read_bytes()
        finally:
            process.kill()


def test_a_locale_is_not_invented(mechanism: Mechanism, place: Place) -> None:
    env = {**SYSTEM_PATH, "LC_CTYPE": "C"}
    done = finish(prepare(place.policy(), ["/usr/bin/env"], mechanism, place.work, env=env), place.work)
    assert sorted(done.stdout.splitlines()) == [b"LC_CTYPE=C", b"PATH=/usr/bin:/bin"]


def test_arg0(mechanism: Mechanism, place: Place) -> None:
    confined = prepare(place.policy(), ["/bin/sh", "-c", "echo $0"], mechanism, place.work, arg0="renamed")
    assert finish(confined, place.work).stdout == b"renamed\n"


@pytest.mark.parametrize("name", ["a=b", "-"])
def test_odd_program_names(mechanism: Mechanism, place: Place, name: str) -> None:
    program = place.work / name
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    env = {"PATH": f"{place.work}:/usr/bin:/bin"}
    assert finish(prepare(place.policy(), [name], mechanism, place.work, env=env), place.work).stdout == b"ran\n"


def test_a_script_that_names_no_shell_runs(mechanism: Mechanism, place: Place) -> None:
    if mechanism == "landlock":
        pytest.skip("the launcher does not take a file for a script that does not say so")
    program = place.work / "script"
    program.write_text("echo ran $1\n")
    program.chmod(0o755)
    env = {"PATH": f"{place.work}:/usr/bin:/bin"}
    done = finish(prepare(place.policy(), ["script", "it"], mechanism, place.work, env=env), place.work)
    assert done.stdout == b"ran it\n"


@pytest.mark.parametrize("arg0", [None, "renamed"])
def test_what_cannot_be_executed_says_so(mechanism: Mechanism, place: Place, arg0: str | None) -> None:
    (place.work / "plain").write_text("#!/bin/sh\n")
    done = finish(prepare(place.policy(), ["./plain"], mechanism, place.work, arg0=arg0), place.work)
    assert (done.returncode, b"plain" in done.stderr) == (126, True)
    done = finish(prepare(place.policy(), ["./missing"], mechanism, place.work, arg0=arg0), place.work)
    assert (done.returncode, b"No such file or directory" in done.stderr) == (127, True)


def test_bubblewrap_has_terminals_shared_memory_and_a_proc_of_its_own(bubblewrap: Mechanism, place: Place) -> None:
    """They are no files of the workspace, but may be written."""
    code = (
        "import os\n"
        "near, far = os.openpty()\n"
        "open(os.ttyname(far), 'w').write('x')\n"
        "open('/dev/shm/it', 'w').write('x')\n"
        "if os.geteuid(): open('/proc/self/comm', 'w').write('it')  # root has it read-only\n"
        "open('/dev/stdout', 'w').write('x')\n"
        "for name in ('a', 'b'): os.mkdir(name)\n"
        "open('a/file', 'w').write('x')\n"
        "os.rename('a/file', 'b/file')\n"
        "os.link('b/file', 'a/file')\n"
    )
    done = python(place.policy(), bubblewrap, place.work, code)
    assert (done.returncode, done.stderr) == (0, b"")


def test_processes_memory_and_disk_are_not_limited(mechanism: Mechanism, place: Place) -> None:
    """docs/security.md says so: limits of the user hold, and no others."""
    names = ("RLIMIT_NPROC", "RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_CPU", "RLIMIT_NOFILE")
    code = f"import resource; print([resource.getrlimit(getattr(resource, name)) for name in {names}])"
    done = python(place.policy(), mechanism, place.work, code)
    assert done.stdout.decode().strip() == str([resource.getrlimit(getattr(resource, name)) for name in names])


def test_standard_input_and_working_directory(mechanism: Mechanism, place: Place) -> None:
    (place.work / "sub").mkdir()
    confined = prepare(place.policy(), ["/bin/sh", "-c", "pwd -P; cat"], mechanism, place.work / "sub")
    assert finish(confined, place.work / "sub", b"through").stdout == f"{place.work}/sub\nthrough".encode()


def test_no_descriptor_is_left_open(mechanism: Mechanism, place: Place) -> None:
    code = "import os; os.write(1, repr([n for n in range(3, 64) if os.path.exists(f'/proc/self/fd/{n}')]).encode())"
    assert python(place.policy(), mechanism, place.work, code).stdout == b"[]"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_group_reaches_the_command(mechanism: Mechanism, place: Place, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    # Not one long `read`: a signal between the line before it and its system call would be seen only when it returns.
    script = f"trap 'echo caught; exit 3' {name}; echo ready; while :; do sleep 1; done"
    confined = prepare(place.policy(), ["/bin/sh", "-c", script], mechanism, place.work)
    with started(confined, place.work) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.killpg(process.pid, number)
        assert process.stdout.read() == b"caught\n"
        assert process.wait(DEADLINE) == 3


def test_a_kill_ends_everything(bubblewrap: Mechanism, place: Place) -> None:
    confined = prepare(
        place.policy(), ["/bin/sh", "-c", "setsid sleep 1000 & echo ready; wait"], bubblewrap, place.work
    )
    with started(confined, place.work) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.killpg(process.pid, signal.SIGKILL)
        assert process.stdout.read() == b""  # only comes when the last holder of the pipe is gone


# --- the terminal ---


class Terminal:
    """The near end of a terminal, read until something shows up."""

    def __init__(self, confined: Confined, cwd: Path) -> None:
        self.near, far = os.openpty()
        # setsid -c gives the terminal to the session that it makes, in the same process.
        command = ["/usr/bin/setsid", "-c", *handing(confined.argv, confined.handed)]
        self.process = subprocess.Popen(command, stdin=far, stdout=far, stderr=far, cwd=cwd, env={})
        os.close(far)
        self.seen = b""

    def expect(self, text: bytes) -> None:
        deadline = time.monotonic() + DEADLINE
        while text not in self.seen:
            ready, _, _ = select.select([self.near], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come, only {self.seen!r}"
            self.seen += os.read(self.near, 4096)
        self.seen = self.seen.partition(text)[2]

    def type(self, keys: bytes) -> None:
        os.write(self.near, keys)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE)
        os.close(self.near)


@pytest.fixture
def terminal(request: pytest.FixtureRequest, mechanism: Mechanism, place: Place) -> Iterator[Terminal]:
    env = {**SYSTEM_PATH, "PS1": "prompt> ", "TERM": "dumb"}
    confined = prepare(place.policy(), request.param, mechanism, place.work, env=env, tty=True)
    opened = Terminal(confined, place.work)
    yield opened
    opened.close()


@pytest.mark.parametrize("terminal", [("/bin/sh", "-c", "test -t 0 && echo ready; exec sleep 1000")], indirect=True)
def test_ctrl_c_ends_the_command(terminal: Terminal) -> None:
    terminal.expect(b"ready")
    terminal.type(b"\x03")
    assert terminal.process.wait(DEADLINE) in (130, -signal.SIGINT)


@pytest.mark.parametrize("terminal", [("/bin/sh", "-i")], indirect=True)
def test_job_control(terminal: Terminal, mechanism: Mechanism) -> None:
    terminal.expect(b"prompt> ")
    terminal.type(b"sh -c 'echo st''arted; exec sleep 1000'\n")
    terminal.expect(b"started")
    terminal.type(b"\x03")
    terminal.expect(b"prompt> ")
    terminal.type(b"echo code=$?\n")
    terminal.expect(b"code=130")
    terminal.expect(b"prompt> ")
    terminal.type(b"\x03")  # at the prompt, where it must end nothing
    terminal.expect(b"prompt> ")
    terminal.type(b"sh -c 'echo st''arted; exec sleep 1000'\n")
    terminal.expect(b"started")
    terminal.type(b"\x1a")
    terminal.expect(b"Stopped")
    terminal.expect(b"prompt> ")
    terminal.type(b"kill -9 %1\n" + b"exit 5\n" * 2)  # the first may only warn of the stopped job
    # dash gives the terminal back to the group it came from, which a pid namespace cannot name, and ends with 2.
    assert terminal.process.wait(DEADLINE) in ((5, 2) if mechanism == "bubblewrap" else (5,))


# --- the choice ---


def test_the_mechanism_can_be_configured(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    usable("landlock")
    monkeypatch.setenv("TREADLE_SANDBOX", "landlock")
    confined = prepare(place.policy(), ["true"], None, place.work)
    assert HOST.launcher() in confined.argv
    monkeypatch.setenv("TREADLE_SANDBOX", "none")
    with pytest.raises(ExecError, match="TREADLE_SANDBOX"):
        prepare(place.policy(), ["true"], None, place.work)


def test_bubblewrap_is_preferred(bubblewrap: Mechanism, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREADLE_SANDBOX", raising=False)
    chosen = prepare(place.policy(), ["true"], None, place.work)
    assert chosen.argv == prepare(place.policy(), ["true"], bubblewrap, place.work).argv


def test_without_any_mechanism_the_request_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREADLE_SANDBOX", raising=False)
    monkeypatch.setattr(HOST, "bubblewrap", lambda: Unusable("gone"))
    monkeypatch.setattr(HOST, "landlock", lambda: 0)
    with pytest.raises(ExecError, match="install bubblewrap") as caught:
        prepare(place.policy(), ["true"], None, place.work)
    assert caught.value.code == INVALID_REQUEST


@pytest.mark.parametrize(
    "options",
    [
        ("--landlock", "65535,0"),
        ("--landlock", "1,0,0", "--grant", "1,/no/such/path"),
        ("--landlock", "1,0,0", "--filter", "zz"),
        ("--landlock", "1,0,0", "--filter", "06000000"),
        ("--surprise", "x"),
    ],
)
def test_a_launcher_that_fails_does_not_run_the_command(place: Place, options: tuple[str, ...]) -> None:
    usable("landlock")
    command = [PYTHON, "-I", "-S", LAUNCHER, *options, "--", "/bin/sh", "-c", "echo x > made"]
    done = subprocess.run(command, capture_output=True, cwd=place.work, env={}, timeout=DEADLINE, check=False)
    assert done.returncode == 125
    assert done.stderr.startswith(b"treadle sandbox: the command was not run: ")
    assert not (place.work / "made").exists()
