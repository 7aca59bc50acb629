"""Attempts on the kernel: namespaces and mounts, settings, devices, terminals, and calls that open ways into it."""

from __future__ import annotations

import ctypes
import errno
import glob
import os

from system.escapes.escape_files import spoil
from system.escapes.escape_table import ALWAYS, DID_IT, LIBC, Ground, Tell, attempt, checked, system_call

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
AT_FDCWD = -100
# Some machines do not let ordinary users have user namespaces.
NO_NAMESPACES = (errno.EPERM, errno.ENOSPC, errno.EACCES)


# --- namespaces and mounts ---


def new_namespaces(more: int = 0) -> None:
    checked(LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS | more))
    checked(LIBC.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))


@attempt("mount-writable", settings=ALWAYS, may_lack=NO_NAMESPACES)
def mount_writable(ground: Ground, tell: Tell) -> None:
    new_namespaces()
    there = os.fsencode(ground.outside)
    checked(LIBC.mount(there, there, None, MS_BIND, None))
    checked(LIBC.mount(None, there, None, MS_BIND | MS_REMOUNT, None))
    spoil(f"{ground.outside}/victim")


@attempt("mount-inside", may_lack=NO_NAMESPACES)
def mount_inside(ground: Ground, tell: Tell) -> None:
    """What is mounted below a path that may be written."""
    new_namespaces()
    os.mkdir("there")
    checked(LIBC.mount(os.fsencode(ground.outside), b"there", None, MS_BIND, None))
    spoil("there/victim")


@attempt("remount-root", may_lack=NO_NAMESPACES)
def remount_root(ground: Ground, tell: Tell) -> None:
    new_namespaces()
    checked(LIBC.mount(None, b"/", None, MS_BIND | MS_REMOUNT, None))
    spoil(f"{ground.outside}/victim")


@attempt("chroot", may_lack=NO_NAMESPACES)
def chroot(ground: Ground, tell: Tell) -> None:
    """A root below the working directory does not keep it in."""
    checked(LIBC.unshare(CLONE_NEWUSER))
    os.mkdir("jail")
    os.chroot("jail")
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    spoil(f"{ground.outside}/victim")


@attempt("powers-of-a-user-namespace", may_lack=NO_NAMESPACES)
def powers(ground: Ground, tell: Tell) -> None:
    user = os.geteuid()
    checked(LIBC.unshare(CLONE_NEWUSER))
    with open("/proc/self/uid_map", "w") as file:
        file.write(f"0 {user} 1")
    spoil(f"{ground.outside}/victim")


@attempt("join-mount-namespace", needs=("process",), control="root")
def join_namespace(ground: Ground, tell: Tell) -> None:
    checked(LIBC.setns(os.open(f"/proc/{ground.pid}/ns/mnt", os.O_RDONLY), CLONE_NEWNS))
    spoil(f"{ground.outside}/victim")


@attempt("file-handle", settings=ALWAYS, control="root", may_lack=(errno.EOPNOTSUPP,))
def file_handle(ground: Ground, tell: Tell) -> None:
    handle = ctypes.create_string_buffer((128).to_bytes(4, "little"), 8 + 128)
    mount, path = ctypes.c_int(), os.fsencode(f"{ground.outside}/victim")
    checked(LIBC.name_to_handle_at(AT_FDCWD, path, handle, ctypes.byref(mount), 0))
    there = os.open(ground.outside, os.O_RDONLY)
    os.write(checked(LIBC.open_by_handle_at(there, handle, os.O_WRONLY)), b"spoiled")


@attempt("new-privileges", settings=ALWAYS)
def new_privileges(ground: Ground, tell: Tell) -> None:
    """Whether a setuid program would still get the rights of its owner."""
    with open("/proc/self/status") as file:
        if "NoNewPrivs:\t0" in file.read():
            tell(DID_IT)


# --- settings and devices: that they can be opened is enough ---


def open_first(tell: Tell, paths: list[str], flags: int) -> None:
    if not paths:
        raise FileNotFoundError(errno.ENOENT, "this machine has none")
    os.close(os.open(paths[0], flags))
    tell(DID_IT)


@attempt("core-pattern", settings=ALWAYS, control="root")
def core_pattern(ground: Ground, tell: Tell) -> None:
    open_first(tell, ["/proc/sys/kernel/core_pattern"], os.O_WRONLY)


@attempt("core-pattern-new-proc", control="root", may_lack=NO_NAMESPACES)
def core_pattern_new_proc(ground: Ground, tell: Tell) -> None:
    """A /proc that was mounted anew would not be read-only."""
    new_namespaces(CLONE_NEWPID)
    os.mkdir("proc")
    child = os.fork()  # only a child is in the new pid namespace, and may mount what belongs to it
    if child:
        os.waitpid(child, 0)
        return
    checked(LIBC.mount(b"proc", b"proc", b"proc", 0, None))
    open_first(tell, ["proc/sys/kernel/core_pattern"], os.O_WRONLY)


@attempt("sysrq", control="root", may_lack=(errno.ENOENT,))
def sysrq(ground: Ground, tell: Tell) -> None:
    open_first(tell, ["/proc/sysrq-trigger"], os.O_WRONLY)


@attempt("program-formats", control="root", may_lack=(errno.ENOENT,))
def program_formats(ground: Ground, tell: Tell) -> None:
    open_first(tell, ["/proc/sys/fs/binfmt_misc/register"], os.O_WRONLY)


@attempt("control-group", control="root", may_lack=(errno.ENOENT, errno.EROFS))
def control_group(ground: Ground, tell: Tell) -> None:
    paths = ["/sys/fs/cgroup/cgroup.procs", *sorted(glob.glob("/sys/fs/cgroup/*/cgroup.procs"))]
    open_first(tell, [path for path in paths if os.path.exists(path)], os.O_WRONLY)


@attempt("system-setting", control="root", may_lack=(errno.ENOENT, errno.EROFS))
def system_setting(ground: Ground, tell: Tell) -> None:
    open_first(tell, ["/sys/kernel/mm/transparent_hugepage/enabled"], os.O_WRONLY)


@attempt("disk", settings=ALWAYS, control="root", may_lack=(errno.ENOENT, errno.EPERM))
def disk(ground: Ground, tell: Tell) -> None:
    names = [os.path.basename(path) for path in sorted(glob.glob("/sys/block/[!lr]*"))]  # no loop, no ram
    open_first(tell, [f"/dev/{name}" for name in names], os.O_RDONLY)


@attempt("kernel-log", control="root", may_lack=(errno.ENOENT, errno.EPERM))
def kernel_log(ground: Ground, tell: Tell) -> None:
    open_first(tell, ["/dev/kmsg"], os.O_WRONLY)


@attempt("terminal-write", needs=("terminal",), settings=ALWAYS)
def terminal_write(ground: Ground, tell: Tell) -> None:
    os.write(os.open(ground.terminal, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK), b"typed")


@attempt("terminal-read", needs=("terminal",), settings=ALWAYS)
def terminal_read(ground: Ground, tell: Tell) -> None:
    tell(os.read(os.open(ground.terminal, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK), 100))


# --- calls ---


@attempt("ring", settings=ALWAYS, may_lack=(errno.ENOSYS, errno.EPERM))
def ring(ground: Ground, tell: Tell) -> None:
    system_call("io_uring_setup", 1, ctypes.create_string_buffer(120))
    tell(DID_IT)


@attempt("kernel-program", settings=ALWAYS, control="root", may_lack=(errno.ENOSYS, errno.EPERM))
def kernel_program(ground: Ground, tell: Tell) -> None:
    array_map = b"".join(value.to_bytes(4, "little") for value in (2, 4, 4, 1, 0))  # kind, key, value, entries, flags
    system_call("bpf", 0, array_map, len(array_map))
    tell(DID_IT)


@attempt("performance-counter", settings=ALWAYS, may_lack=(errno.ENOSYS, errno.EPERM, errno.EACCES, errno.ENOENT))
def performance_counter(ground: Ground, tell: Tell) -> None:
    # The clock of the processor, without what it does in the kernel.
    clock = (1).to_bytes(4, "little") + (64).to_bytes(4, "little") + bytes(32) + (0x60).to_bytes(8, "little")
    system_call("perf_event_open", clock + bytes(64 - len(clock)), 0, -1, -1, ctypes.c_ulong(0))
    tell(DID_IT)


@attempt("page-faults", settings=ALWAYS, may_lack=(errno.ENOSYS, errno.EPERM))
def page_faults(ground: Ground, tell: Tell) -> None:
    system_call("userfaultfd", 1)  # UFFD_USER_MODE_ONLY, which needs no powers
    tell(DID_IT)
