"""The supervisor: a small process that starts, signals and reaps commands for its owner, and outlives it by a moment.

It runs as a program of its own (`python -I -S`, standard library only, few imports), connected to its owner by one
socket. Why it exists:

- when the owner dies, by SIGKILL too, the socket ends and the supervisor kills everything that was started;
- starting a program blocks until its exec; here that does not block the owner's event loop;
- the owner may be anybody's Python program: its signal handlers, children and threads are left alone.

Every command and all its descendants carry a *tag*: the soft limit RLIMIT_LOCKS, which Linux has ignored since 2.4.25
but still inherits through fork, exec and setsid and shows in /proc/PID/limits. So a family can be found however it
daemonised.

    poll ─┬─ SIGCHLD ─▶ reap: "exited"
          ├─ message ─▶ "spawn": put on the tag, start, take off the tag ─▶ "spawned" or "refused"
          │                      (with limits: by a fork, whose child puts them on before it becomes the command)
          │             "signal": to the process group
          │             "end": a new `FamilyEnding`
          ├─ tick, while something is being ended ─▶ scan /proc once, a step of each ending:
          │             TERM ──grace──▶ KILL ──gone, or 5 s later──▶ "ended"
          └─ end of the socket (the owner is gone) ─▶ KILL for all tags of this supervisor, until none is left

Reasons: "signal" is for a command that has not been reaped, because until then neither its pid nor its group can be
another's; a family is listed anew before each step, because it may fork while it is being ended; and its members are
signalled by descriptors, since we are not their parent and a pid may be another's by then.

Messages are marshalled tuples behind a 4-byte length. Owner to supervisor:
    ("spawn", id, tag, count, argv, arg0 or None, cwd, env, terminal or None, limits or None)
        with so many descriptors; limits are pairs for `setrlimit`, and the path of a control group or None
    ("signal", id, signal number)
    ("end", token, first tag, last tag, grace seconds)    TERM, then KILL for a range of tags
Supervisor to owner:
    ("spawned", id, pid)   ("refused", id, errno, "cwd", "program" or "limits")
    ("exited", id, exit code)   ("ended", token)
"""

from __future__ import annotations

# The module around it doubles every number as an enum, for a megabyte.
import _signal as signal  # type: ignore[import-not-found]
import _socket
import marshal
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False  # as `typing` has it, which this program does without
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RLIMIT_LOCKS = 10
DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"
MAX_FDS = 64
# While a family is being ended, look this often whether it is gone.
ENDING_TICK_S = 0.05
# A machine that starts processes all the time shows new ones in every listing.
MAX_LISTINGS = 20
# KILL cannot be refused, but a process in an uninterruptible wait can take its time; then it is given up.
KILL_PATIENCE_S = 5.0


# --- families ---


def tag_of(pid: int) -> int:
    """The tag that a process carries; 0 when it has none or is gone."""
    try:
        with open(f"/proc/{pid}/limits", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:
        return 0
    start = text.find(b"Max file locks")
    word = text[start + 14 : text.find(b"\n", start)].split()[0] if start >= 0 else b""
    return int(word) if word.isdigit() else 0


class FamilyMember:  # no NamedTuple: `typing` would double the memory of this program
    __slots__ = ("parent", "session", "tag")

    def __init__(self, parent: int, session: int, tag: int) -> None:
        self.parent: int = parent
        self.session: int = session
        self.tag: int = tag


Table = dict[int, FamilyMember]


def scan() -> Table:
    """All living processes by their pid.

    Listed until no new one appears: whoever forked after it was listed, and had ended before it was looked at, would
    hide its child.
    """
    table: Table = {}
    seen: set[int] = set()
    for _ in range(MAX_LISTINGS):
        new = {int(name) for name in os.listdir("/proc") if name.isdigit()} - seen
        if not new:
            break
        seen |= new
        for pid in new:
            member = look_at(pid)
            if member is not None:
                table[pid] = member
    return table


def look_at(pid: int) -> FamilyMember | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            state, parent, _, session, _ = file.read(512).rpartition(b")")[2].split(None, 4)
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else FamilyMember(int(parent), int(session), tag_of(pid))


def family(table: Table, first: int, last: int, sessions: dict[int, int]) -> list[int]:
    """Processes whose tag is in the range, and their descendants, which may carry the tags of a nested supervisor.

    `sessions` has, by tag, the sessions of commands that could not be given one.
    """
    untagged = {session for tag, session in sessions.items() if first <= tag <= last}
    members = {pid for pid, member in table.items() if first <= member.tag <= last or member.session in untagged}
    newest = members
    while newest:
        newest = {pid for pid, member in table.items() if member.parent in newest and pid not in members}
        members |= newest
    return sorted(members)


def send_signal(pids: list[int], *numbers: int) -> None:
    """Signal each process, by a descriptor, so that a pid that is taken over in between is not hit."""
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            for number in numbers:
                signal.pidfd_send_signal(fd, number)
        except (ProcessLookupError, PermissionError):
            continue
        finally:
            os.close(fd)


def signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return  # all of it has ended, or belongs to somebody else now


class FamilyEnding:
    """A family on its way out: first TERM, at the deadline KILL."""

    def __init__(self, token: int, first: int, last: int, grace: float) -> None:
        self.token = token
        self.tags: tuple[int, int] = (first, last)
        self.asked: bool = grace <= 0
        self.kill_at: float = time.monotonic() + grace
        self.give_up_at: float = self.kill_at + KILL_PATIENCE_S

    def step(self, table: Table, sessions: dict[int, int]) -> bool:
        """Whether it is over."""
        members = family(table, *self.tags, sessions)
        if not members:
            return True
        now = time.monotonic()
        if now >= self.kill_at:
            send_signal(members, signal.SIGKILL)
        elif not self.asked:
            self.asked = True
            send_signal(members, signal.SIGTERM, signal.SIGCONT)
        return now >= self.give_up_at


# --- starting ---

_RESET = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


def candidates(program: bytes, env: dict[bytes, bytes]) -> list[bytes]:
    if b"/" in program:
        return [program]
    return [os.path.join(folder or b".", program) for folder in env.get(b"PATH", DEFAULT_PATH).split(b":")]


class StartRefused(Exception):
    def __init__(self, errno: int, what: str) -> None:
        self.errno = errno
        self.what = what


def start(
    argv: list[bytes], arg0: bytes | None, cwd: bytes, env: dict[bytes, bytes], fds: list[int], terminal: bytes | None
) -> int:
    try:
        os.chdir(cwd)
    except OSError as error:
        raise StartRefused(error.errno or 0, "cwd") from None
    actions: list[tuple[int, ...] | tuple[int, int, bytes, int, int]]
    if terminal is not None:
        # The first terminal that a session leader opens becomes its controlling terminal.
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, terminal, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
            *((os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds[1:], 3)),
        ]
    else:
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)]
    seen = [argv[0] if arg0 is None else arg0, *argv[1:]]
    options: dict[str, Any] = {"file_actions": actions, "setsid": True, "setsigmask": (), "setsigdef": _RESET}
    return first_found(argv[0], env, lambda path: os.posix_spawn(path, seen, env, **options))


def first_found(program: bytes, env: dict[bytes, bytes], run: Callable[[bytes], int]) -> int:
    """What `run` gives for the first file of the program that can be executed."""
    failure = 2
    for path in candidates(program, env):
        try:
            return run(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            failure = error.errno or 13
        except OSError as error:
            raise StartRefused(error.errno or 0, "program") from None
    raise StartRefused(failure, "program")


def start_limited(
    argv: list[bytes],
    arg0: bytes | None,
    cwd: bytes,
    env: dict[bytes, bytes],
    fds: list[int],
    terminal: bytes | None,
    limits: tuple[list[tuple[int, int]], bytes | None],
) -> int:
    """What `start` does, with limits that are there before the command is: it never runs without them."""
    reader, writer = os.pipe()  # written to when the child fails, and closed when it has become the command
    pid = os.fork()
    if pid == 0:
        while writer < MAX_FDS:  # out of the way of the descriptors that the command gets
            writer = os.dup(writer)
        refused = (5, "program")
        try:
            become(argv, arg0, cwd, env, fds, terminal, limits)
        except StartRefused as error:
            refused = error.errno, error.what
        except OSError as error:
            refused = error.errno or 5, "limits"
        except MemoryError:
            refused = 12, "limits"
        finally:
            os.write(writer, b"%d %s" % (refused[0], refused[1].encode()))
            os._exit(127)
    os.close(writer)
    report = os.read(reader, 64)
    os.close(reader)
    if report:
        os.waitpid(pid, 0)
        errno, what = report.decode().split()
        raise StartRefused(int(errno), what)
    return pid


def become(
    argv: list[bytes],
    arg0: bytes | None,
    cwd: bytes,
    env: dict[bytes, bytes],
    fds: list[int],
    terminal: bytes | None,
    limits: tuple[list[tuple[int, int]], bytes | None],
) -> None:
    """Become the command, in a child of our own. Raises `StartRefused`, and `OSError` when a limit cannot be put on."""
    values, group = limits
    os.setsid()
    if group is not None:
        descriptor = os.open(group + b"/cgroup.procs", os.O_WRONLY)
        os.write(descriptor, b"0")
        os.close(descriptor)
    try:
        os.chdir(cwd)
    except OSError as error:
        raise StartRefused(error.errno or 0, "cwd") from None
    # The first terminal that a session leader opens becomes its controlling terminal.
    first = fds if terminal is None else [os.open(terminal, os.O_RDWR)] * 3 + fds[1:]
    for number, fd in enumerate(first):
        os.dup2(fd, number)
        os.set_inheritable(number, True)  # also where both are the same
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    seen = [argv[0] if arg0 is None else arg0, *argv[1:]]
    for number, value in values:
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))
    first_found(argv[0], env, lambda path: os.execve(path, seen, env))


# --- the loop ---


class SupervisorLoop:
    def __init__(self, sock: _socket.socket) -> None:
        self.sock = sock
        self.buffer: bytearray = bytearray()
        self.fds: list[int] = []
        self.running: dict[int, int] = {}  # pid -> id
        self.pids: dict[int, int] = {}  # id -> pid
        self.endings: list[FamilyEnding] = []
        self.look_at: float = 0.0
        self.sessions: dict[int, int] = {}  # tag -> session, of commands that could not be tagged
        self.own_limit: int
        self.hard_limit: int
        self.own_limit, self.hard_limit = resource.getrlimit(RLIMIT_LOCKS)
        self.alive: bool = True

    def run(self) -> None:
        wake_reader, wake_writer = os.pipe()
        os.set_blocking(wake_reader, False)
        os.set_blocking(wake_writer, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self.sock.fileno(), select.POLLIN)
        poll.register(wake_reader, select.POLLIN)
        while self.alive:
            ready = dict(poll.poll(ENDING_TICK_S * 1000 if self.endings else None))
            if wake_reader in ready:
                os.read(wake_reader, 4096)
                self.reap()
            if self.sock.fileno() in ready:
                self.receive()
            if self.endings and time.monotonic() >= self.look_at:
                self.look()

    def look(self) -> None:
        table = scan()
        over = [ending for ending in self.endings if ending.step(table, self.sessions)]
        for ending in over:
            self.endings.remove(ending)
            self.send(("ended", ending.token))
        self.look_at = time.monotonic() + ENDING_TICK_S

    def reap(self) -> None:
        while self.running:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self.running.pop(pid, None)
            if number is None:
                continue
            del self.pids[number]
            self.look_at = 0.0
            code = os.waitstatus_to_exitcode(status)
            self.send(("exited", number, code if code >= 0 else 128 - code))

    def receive(self) -> None:
        try:
            data, ancillary, _, _ = self.sock.recvmsg(
                1 << 16, _socket.CMSG_SPACE(MAX_FDS * 4), _socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            data, ancillary = b"", []
        for level, kind, payload in ancillary:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                self.fds += [int.from_bytes(payload[at : at + 4], sys.byteorder) for at in range(0, len(payload), 4)]
        if not data:
            self.alive = False
            return
        self.buffer += data
        while len(self.buffer) >= 4:
            end = 4 + int.from_bytes(self.buffer[:4], "little")
            if len(self.buffer) < end:
                return
            message = marshal.loads(memoryview(self.buffer)[4:end])
            del self.buffer[:end]
            self.handle(message)

    def handle(self, message: tuple[Any, ...]) -> None:
        if message[0] == "spawn":
            self.spawn(*message[1:])
        elif message[0] == "signal":
            # Only while it has not been reaped: then neither the pid nor the group can have been taken over.
            pid = self.pids.get(message[1])
            if pid is not None:
                signal_group(pid, message[2])
        else:
            self.endings.append(FamilyEnding(*message[1:]))
            self.look_at = 0.0

    def spawn(
        self,
        number: int,
        tag: int,
        count: int,
        argv: list[bytes],
        arg0: bytes | None,
        cwd: bytes,
        env: dict[bytes, bytes],
        terminal: bytes | None,
        limits: tuple[list[tuple[int, int]], bytes | None] | None,
    ) -> None:
        fds, self.fds = self.fds[:count], self.fds[count:]
        tagged = self.put_on(tag)
        try:
            if limits is None:
                pid = start(argv, arg0, cwd, env, fds, terminal)
            else:
                pid = start_limited(argv, arg0, cwd, env, fds, terminal, limits)
        except StartRefused as refused:
            self.send(("refused", number, refused.errno, refused.what))
        else:
            self.running[pid] = number
            self.pids[number] = pid
            if not tagged:
                self.sessions[tag] = pid
            self.send(("spawned", number, pid))
        finally:
            if tagged:
                self.put_on(self.own_limit)
            for fd in fds:
                os.close(fd)

    def put_on(self, tag: int) -> bool:
        """Set the tag that the next command inherits; whether it worked: somebody may have lowered the limit for good,
        or a sandbox around us may not let it be changed. Then a daemon that leaves its session escapes."""
        if self.hard_limit != resource.RLIM_INFINITY:
            return False
        try:
            resource.setrlimit(RLIMIT_LOCKS, (tag, self.hard_limit))
        except (OSError, ValueError):
            return False
        return True

    def send(self, message: tuple[Any, ...]) -> None:
        payload = marshal.dumps(message)
        try:
            self.sock.sendall(len(payload).to_bytes(4, "little") + payload)
        except (BrokenPipeError, ConnectionResetError):
            self.alive = False


def main() -> None:
    fd, first_tag, last_tag = (int(word) for word in sys.argv[1:4])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.set_inheritable(fd, False)
    sock = _socket.socket(fileno=fd)
    sock.setblocking(True)
    supervisor = SupervisorLoop(sock)
    try:
        supervisor.run()
    finally:
        last = FamilyEnding(0, first_tag, last_tag, 0)
        while not last.step(scan(), supervisor.sessions):
            time.sleep(ENDING_TICK_S)
