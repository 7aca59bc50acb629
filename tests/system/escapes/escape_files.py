"""Attempts on files: to change what may only be read, and to read what may not."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import socket
import stat
import struct

from system.escapes.escape_table import DID_IT, LIBC, Ground, Tell, attempt, checked

AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400
CLONE_NEWUSER = 0x10000000
RENAME_EXCHANGE = 2
FCHMODAT2 = 452
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_NODUMP_FL = 0x80086601, 0x40086602, 0x40


def spoil(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, b"spoiled")
    os.close(descriptor)


@attempt("file-write")
def write(ground: Ground, tell: Tell) -> None:
    spoil(f"{ground.outside}/victim")


@attempt("file-append")
def append(ground: Ground, tell: Tell) -> None:
    with open(f"{ground.outside}/victim", "a") as file:
        file.write("more")


@attempt("file-truncate")
def truncate(ground: Ground, tell: Tell) -> None:
    os.truncate(f"{ground.outside}/victim", 0)


@attempt("file-truncate-on-open")
def truncate_on_open(ground: Ground, tell: Tell) -> None:
    os.open(f"{ground.outside}/victim", os.O_RDONLY | os.O_TRUNC)


@attempt("file-remove")
def remove(ground: Ground, tell: Tell) -> None:
    os.unlink(f"{ground.outside}/victim")


@attempt("directory-remove")
def remove_directory(ground: Ground, tell: Tell) -> None:
    os.rmdir(f"{ground.outside}/folder")


@attempt("rename-over")
def rename_over(ground: Ground, tell: Tell) -> None:
    with open("mine", "w") as file:
        file.write("spoiled")
    os.rename("mine", f"{ground.outside}/victim")


@attempt("rename-away")
def rename_away(ground: Ground, tell: Tell) -> None:
    os.rename(f"{ground.outside}/victim", "taken")


@attempt("rename-directory")
def rename_directory(ground: Ground, tell: Tell) -> None:
    os.rename(f"{ground.outside}/folder", f"{ground.outside}/other")


@attempt("rename-exchange")
def rename_exchange(ground: Ground, tell: Tell) -> None:
    with open("mine", "w") as file:
        file.write("spoiled")
    victim = os.fsencode(f"{ground.outside}/victim")
    checked(LIBC.renameat2(AT_FDCWD, b"mine", AT_FDCWD, victim, RENAME_EXCHANGE))


@attempt("hard-link-in")
def hard_link(ground: Ground, tell: Tell) -> None:
    os.link(f"{ground.outside}/victim", "link")
    spoil("link")


@attempt("hard-link-out")
def hard_link_out(ground: Ground, tell: Tell) -> None:
    with open("mine", "w") as file:
        file.write("spoiled")
    os.link("mine", f"{ground.outside}/folder/planted")


@attempt("hard-link-of-the-user", needs=("hard-link",), open_on=("bubblewrap", "landlock"))
def hard_link_of_the_user(ground: Ground, tell: Tell) -> None:
    """One that was there before is a file of the workspace like any other."""
    spoil("link")


@attempt("symlink")
def symlink(ground: Ground, tell: Tell) -> None:
    os.symlink(f"{ground.outside}/victim", "link")
    spoil("link")


@attempt("symlink-directory")
def symlink_directory(ground: Ground, tell: Tell) -> None:
    os.symlink(ground.outside, "link")
    spoil("link/folder/../victim")


@attempt("dot-dot")
def dot_dot(ground: Ground, tell: Tell) -> None:
    spoil(os.path.relpath(f"{ground.outside}/victim", ground.work))


@attempt("dot-dot-descriptor")
def dot_dot_descriptor(ground: Ground, tell: Tell) -> None:
    here = os.open(".", os.O_PATH | os.O_DIRECTORY)
    descriptor = os.open(os.path.relpath(f"{ground.outside}/victim", ground.work), os.O_WRONLY, dir_fd=here)
    os.write(descriptor, b"spoiled")


@attempt("directory-descriptor")
def directory_descriptor(ground: Ground, tell: Tell) -> None:
    there = os.open(ground.outside, os.O_PATH | os.O_DIRECTORY)
    os.unlink("victim", dir_fd=there)


@attempt("proc-self-root")
def proc_self_root(ground: Ground, tell: Tell) -> None:
    spoil(f"/proc/self/root{ground.outside}/victim")


@attempt("proc-self-cwd")
def proc_self_cwd(ground: Ground, tell: Tell) -> None:
    os.chdir(ground.outside)
    spoil("/proc/self/cwd/victim")


@attempt("proc-self-fd")
def proc_self_fd(ground: Ground, tell: Tell) -> None:
    descriptor = os.open(f"{ground.outside}/victim", os.O_RDONLY)
    spoil(f"/proc/self/fd/{descriptor}")


@attempt("proc-self-fd-path")
def proc_self_fd_path(ground: Ground, tell: Tell) -> None:
    descriptor = os.open(f"{ground.outside}/victim", os.O_PATH)
    spoil(f"/proc/thread-self/fd/{descriptor}")


@attempt("link-descriptor-in")
def link_descriptor(ground: Ground, tell: Tell) -> None:
    descriptor = os.open(f"{ground.outside}/victim", os.O_RDONLY)
    path = os.fsencode(f"/proc/self/fd/{descriptor}")
    checked(LIBC.linkat(AT_FDCWD, path, AT_FDCWD, b"link", AT_SYMLINK_FOLLOW))
    spoil("link")


@attempt("nameless-file", may_lack=(errno.EOPNOTSUPP,))
def nameless(ground: Ground, tell: Tell) -> None:
    descriptor = os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o600)
    os.write(descriptor, b"spoiled")
    path, there = os.fsencode(f"/proc/self/fd/{descriptor}"), os.fsencode(f"{ground.outside}/folder/planted")
    checked(LIBC.linkat(AT_FDCWD, path, AT_FDCWD, there, AT_SYMLINK_FOLLOW))


@attempt("nameless-file-outside", may_lack=(errno.EOPNOTSUPP,))
def nameless_outside(ground: Ground, tell: Tell) -> None:
    os.open(f"{ground.outside}/folder", os.O_TMPFILE | os.O_WRONLY, 0o600)
    tell(DID_IT)


@attempt("shared-mapping")
def shared_mapping(ground: Ground, tell: Tell) -> None:
    descriptor = os.open(f"{ground.outside}/victim", os.O_RDWR)
    with mmap.mmap(descriptor, 0) as memory:
        memory[:4] = b"evil"


@attempt("read-only-mapping")
def read_only_mapping(ground: Ground, tell: Tell) -> None:
    """Without a sandbox it does not work either; so the control writes at the end."""
    descriptor = os.open(f"{ground.outside}/victim", os.O_RDONLY)
    try:
        mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)[:4] = b"evil"
    except OSError:
        spoil(f"/proc/self/fd/{descriptor}")


@attempt("start-up-file")
def start_up_file(ground: Ground, tell: Tell) -> None:
    with open(f"{ground.outside}/folder/.profile", "w") as file:
        file.write("export LD_PRELOAD=/tmp/evil.so\n")


@attempt("make-directory")
def make_directory(ground: Ground, tell: Tell) -> None:
    os.mkdir(f"{ground.outside}/folder/new")


@attempt("make-symlink")
def make_symlink(ground: Ground, tell: Tell) -> None:
    os.symlink("/", f"{ground.outside}/folder/new")


@attempt("make-fifo")
def make_fifo(ground: Ground, tell: Tell) -> None:
    os.mkfifo(f"{ground.outside}/folder/new")


@attempt("write-fifo", needs=("fifo",), settings=("workspace", "online", "readonly"))
def write_fifo(ground: Ground, tell: Tell) -> None:
    os.write(os.open(f"{ground.outside}/fifo", os.O_WRONLY | os.O_NONBLOCK), b"do this")


@attempt("write-fifo-both-ways", needs=("fifo",), settings=("workspace", "readonly"))
def write_fifo_both_ways(ground: Ground, tell: Tell) -> None:
    os.write(os.open(f"{ground.outside}/fifo", os.O_RDWR | os.O_NONBLOCK), b"do this")


@attempt("make-socket", settings=("workspace", "online"))
def make_socket(ground: Ground, tell: Tell) -> None:
    os.chdir(f"{ground.outside}/folder")
    socket.socket(socket.AF_UNIX).bind("new")


@attempt("make-device", control="root", may_lack=(errno.EPERM,))
def make_device(ground: Ground, tell: Tell) -> None:
    os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))


@attempt("make-setuid")
def make_setuid(ground: Ground, tell: Tell) -> None:
    with open("mine", "w") as file:
        file.write("#!/bin/sh\n")
    os.chmod("mine", 0o4755)


@attempt("make-setuid-descriptor")
def make_setuid_descriptor(ground: Ground, tell: Tell) -> None:
    with open("mine", "w") as file:
        file.write("#!/bin/sh\n")
        file.flush()  # a write takes it away again
        os.fchmod(file.fileno(), 0o4755)


@attempt("make-setuid-open")
def make_setuid_open(ground: Ground, tell: Tell) -> None:
    os.umask(0)
    os.close(os.open("mine", os.O_CREAT | os.O_WRONLY, 0o4755))


@attempt("make-setuid-node")
def make_setuid_node(ground: Ground, tell: Tell) -> None:
    os.umask(0)
    os.mknod("mine", stat.S_IFREG | 0o4755)


@attempt("make-setuid-openat2")
def make_setuid_openat2(ground: Ground, tell: Tell) -> None:
    os.umask(0)
    how = struct.pack("<3Q", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    descriptor = checked(LIBC.syscall(437, -100, b"mine", how, len(how)))
    os.close(descriptor)


@attempt("file-powers", control="root", may_lack=(errno.EOPNOTSUPP,))
def file_powers(ground: Ground, tell: Tell) -> None:
    """Powers that whoever runs the file gets, given directly or as the root of a user namespace."""
    everything = struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0)
    with open("mine", "w") as file:
        file.write("#!/bin/sh\n")
    try:
        os.setxattr("mine", "security.capability", everything)
    except PermissionError:
        user = os.geteuid()
        checked(LIBC.unshare(CLONE_NEWUSER))
        with open("/proc/self/uid_map", "w") as file:
            file.write(f"0 {user} 1")
        os.setxattr("mine", "security.capability", everything)


# --- what Landlock does not watch ---


@attempt("mode", open_on=("landlock",))
def mode(ground: Ground, tell: Tell) -> None:
    os.chmod(f"{ground.outside}/victim", 0o777)


@attempt("times", open_on=("landlock",))
def times(ground: Ground, tell: Tell) -> None:
    os.utime(f"{ground.outside}/victim", (0, 0))


@attempt("mode-in-read-only", settings=("readonly",))
def mode_in_read_only(ground: Ground, tell: Tell) -> None:
    os.chmod(f"{ground.outside}/victim", 0o777)


@attempt("mode-by-descriptor-in-read-only", settings=("readonly",))
def mode_by_descriptor(ground: Ground, tell: Tell) -> None:
    os.chmod(os.open(f"{ground.outside}/victim", os.O_RDONLY), 0o777)


@attempt("mode-by-new-call-in-read-only", settings=("readonly",), may_lack=(errno.ENOSYS,))
def mode_by_new_call(ground: Ground, tell: Tell) -> None:
    victim = os.fsencode(f"{ground.outside}/victim")
    checked(LIBC.syscall(FCHMODAT2, AT_FDCWD, victim, 0o777, 0))


@attempt("times-in-read-only", settings=("readonly",))
def times_in_read_only(ground: Ground, tell: Tell) -> None:
    os.utime(f"{ground.outside}/victim", (0, 0))


@attempt("owner", settings=("workspace", "readonly"))
def owner(ground: Ground, tell: Tell) -> None:
    os.chown(f"{ground.outside}/victim", -1, os.getegid())


@attempt("owner-by-descriptor", settings=("workspace", "readonly"))
def owner_by_descriptor(ground: Ground, tell: Tell) -> None:
    os.chown(os.open(f"{ground.outside}/victim", os.O_RDONLY), -1, os.getegid())


@attempt("attribute", settings=("workspace", "readonly"), may_lack=(errno.EOPNOTSUPP,))
def attribute(ground: Ground, tell: Tell) -> None:
    os.setxattr(f"{ground.outside}/victim", "user.evil", b"x")


@attempt("attribute-by-descriptor", settings=("workspace", "readonly"), may_lack=(errno.EOPNOTSUPP,))
def attribute_by_descriptor(ground: Ground, tell: Tell) -> None:
    os.setxattr(os.open(f"{ground.outside}/victim", os.O_RDONLY), "user.evil", b"x")


@attempt("file-flags", settings=("workspace", "readonly"), may_lack=(errno.EOPNOTSUPP, errno.ENOTTY))
def file_flags(ground: Ground, tell: Tell) -> None:
    descriptor = os.open(f"{ground.outside}/victim", os.O_RDONLY)
    flags = int.from_bytes(fcntl.ioctl(descriptor, FS_IOC_GETFLAGS, bytes(8))[:4], "little")
    fcntl.ioctl(descriptor, FS_IOC_SETFLAGS, (flags ^ FS_NODUMP_FL).to_bytes(8, "little"))


# --- to read what is closed ---


@attempt("read-file", settings=("closed",))
def read_file(ground: Ground, tell: Tell) -> None:
    with open(f"{ground.outside}/secret", "rb") as file:
        tell(file.read())


@attempt("read-symlink", settings=("closed",))
def read_symlink(ground: Ground, tell: Tell) -> None:
    os.symlink(ground.outside, "link")
    with open("link/secret", "rb") as file:
        tell(file.read())


@attempt("read-hard-link", settings=("closed",))
def read_hard_link(ground: Ground, tell: Tell) -> None:
    os.link(f"{ground.outside}/secret", "link")
    with open("link", "rb") as file:
        tell(file.read())


@attempt("read-renamed", settings=("closed",))
def read_renamed(ground: Ground, tell: Tell) -> None:
    os.rename(f"{ground.outside}/secret", "taken")
    with open("taken", "rb") as file:
        tell(file.read())


@attempt("read-descriptor", settings=("closed",))
def read_descriptor(ground: Ground, tell: Tell) -> None:
    descriptor = os.open(f"{ground.outside}/secret", os.O_PATH)
    with open(f"/proc/self/fd/{descriptor}", "rb") as file:
        tell(file.read())


@attempt("read-list", settings=("closed",))
def read_list(ground: Ground, tell: Tell) -> None:
    if "victim" in os.listdir(ground.outside):
        tell(DID_IT)
