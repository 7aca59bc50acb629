"""Attempts to be heard outside, by sockets of all kinds. Each listener is the test's own."""

from __future__ import annotations

import array
import ctypes
import errno
import os
import socket

from system.escapes.escape_table import ALWAYS, DID_IT, LIBC, Ground, Tell, attempt, checked

LOOPBACK = "127.0.0.1"
NETLINK_NETFILTER = 12
LACKING = (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ENODEV)


class Header(ctypes.Structure):
    """`struct mmsghdr`."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint),
        ("vectors", ctypes.c_void_p),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("sent", ctypes.c_uint),
    )


def descriptor(ground: Ground) -> list[tuple[int, int, bytes]]:
    handed = array.array("i", [os.open(ground.work, os.O_RDONLY)])
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handed.tobytes())]


@attempt("unix-stream", needs=("sockets",), settings=ALWAYS)
def unix_stream(ground: Ground, tell: Tell) -> None:
    os.chdir(ground.outside)
    socket.socket(socket.AF_UNIX).connect("stream")


@attempt("unix-sendto", needs=("sockets",), settings=ALWAYS)
def unix_sendto(ground: Ground, tell: Tell) -> None:
    os.chdir(ground.outside)
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", "datagram")


@attempt("unix-sendmsg", needs=("sockets",), settings=ALWAYS)
def unix_sendmsg(ground: Ground, tell: Tell) -> None:
    os.chdir(ground.outside)
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendmsg([b"x"], descriptor(ground), 0, "datagram")


@attempt("unix-pair-sendmsg", needs=("sockets",), settings=ALWAYS)
def unix_pair(ground: Ground, tell: Tell) -> None:
    os.chdir(ground.outside)
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendmsg([b"x"], descriptor(ground), 0, "datagram")


@attempt("unix-pair-raw", needs=("sockets",), settings=ALWAYS)
def unix_pair_raw(ground: Ground, tell: Tell) -> None:
    """A raw unix socket is one for datagrams."""
    os.chdir(ground.outside)
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
    ours.sendmsg([b"x"], [], 0, "datagram")


@attempt("unix-pair-reconnected", needs=("sockets",), settings=ALWAYS)
def unix_pair_reconnected(ground: Ground, tell: Tell) -> None:
    os.chdir(ground.outside)
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.connect("datagram")
    ours.send(b"x")


@attempt("unix-sendmmsg", needs=("sockets",), settings=ALWAYS)
def unix_sendmmsg(ground: Ground, tell: Tell) -> None:
    os.chdir(ground.outside)
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    name = ctypes.create_string_buffer(socket.AF_UNIX.to_bytes(2, "little") + b"datagram\0")
    text = ctypes.create_string_buffer(b"x")
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(text), 1)
    header = Header(ctypes.addressof(name), len(name) - 1, ctypes.addressof(vector), 1, None, 0, 0, 0)
    checked(LIBC.sendmmsg(ours.fileno(), ctypes.byref(header), 1, 0))


@attempt("abstract-stream", needs=("sockets",), settings=ALWAYS)
def abstract_stream(ground: Ground, tell: Tell) -> None:
    socket.socket(socket.AF_UNIX).connect(f"\0{ground.abstract}-stream")


@attempt("abstract-sendmsg", needs=("sockets",), settings=ALWAYS)
def abstract_sendmsg(ground: Ground, tell: Tell) -> None:
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendmsg([b"x"], descriptor(ground), 0, f"\0{ground.abstract}-datagram")


@attempt("abstract-name", needs=("sockets",), settings=ALWAYS)
def abstract_name(ground: Ground, tell: Tell) -> None:
    """To answer in the place of a service that has not started yet."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{ground.abstract}-mine")
    listener.listen()
    tell(DID_IT)


@attempt("tcp", needs=("sockets",))
def tcp(ground: Ground, tell: Tell) -> None:
    socket.create_connection((LOOPBACK, ground.tcp), 5)


@attempt("tcp-fast-open", needs=("sockets",))
def tcp_fast_open(ground: Ground, tell: Tell) -> None:
    """Sending with an address connects as well."""
    socket.socket().sendto(b"x", socket.MSG_FASTOPEN, (LOOPBACK, ground.tcp))


@attempt("tcp-listen")
def tcp_listen(ground: Ground, tell: Tell) -> None:
    socket.create_server((LOOPBACK, 0))
    tell(DID_IT)


@attempt("udp", needs=("sockets",))
def udp(ground: Ground, tell: Tell) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (LOOPBACK, ground.udp))


@attempt("udp-sendmsg", needs=("sockets",))
def udp_sendmsg(ground: Ground, tell: Tell) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendmsg([b"x"], [], 0, (LOOPBACK, ground.udp))


@attempt("udp-mapped", needs=("sockets",), may_lack=LACKING)
def udp_mapped(ground: Ground, tell: Tell) -> None:
    socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b"x", (f"::ffff:{LOOPBACK}", ground.udp))


@attempt("netlink-route")
def netlink_route(ground: Ground, tell: Tell) -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    tell(DID_IT)


@attempt("netlink-netfilter", settings=ALWAYS, may_lack=LACKING)
def netlink_netfilter(ground: Ground, tell: Tell) -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    tell(DID_IT)


@attempt("vsock", settings=ALWAYS, may_lack=LACKING)
def vsock(ground: Ground, tell: Tell) -> None:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    tell(DID_IT)


@attempt("kernel-crypto", settings=ALWAYS, may_lack=LACKING)
def kernel_crypto(ground: Ground, tell: Tell) -> None:
    socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)
    tell(DID_IT)


@attempt("packets", settings=ALWAYS, control="root", may_lack=LACKING)
def packets(ground: Ground, tell: Tell) -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    tell(DID_IT)
