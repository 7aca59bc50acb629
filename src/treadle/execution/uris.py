"""`file:` URIs of the exec-server protocol, to and from native paths.

Owns the rules of what a URI may say and the one canonical way of writing it. Does not look at the file system: `.` and
`..` are resolved by text, symbolic links are left alone.

Native paths are `str` as Python's file functions want them: bytes that are no text are surrogate escapes.
"""

from __future__ import annotations

import os
from typing import Final, Never

from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, ExecError

_SHOWN: Final = 200  # an error repeats at most this much of a hostile URI
_DOTS: Final = {".": 1, "%2e": 1, "..": 2, ".%2e": 2, "%2e.": 2, "%2e%2e": 2}
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_SAFE: Final = frozenset(range(0x21, 0x7F)) - frozenset(b'"#%<>?\\^`{|}')
_SAFE_BYTES: Final = bytes(sorted(_SAFE))
_QUOTED: Final = tuple(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in range(256))


def path_from_uri(uri: str, *, field: str = "path") -> str:
    """The native absolute path that a `file:` URI names; `field` is the parameter it came in."""
    scheme, colon, rest = uri.partition(":")
    if not colon or not scheme.isascii() or not scheme.replace("+", "").replace("-", "").replace(".", "").isalnum():
        _invalid(uri, field, "relative URL without a base; write file:///absolute/path")
    if scheme.lower() != "file":
        _invalid(uri, field, f"scheme {_shown(scheme)} is not supported; only file: is")
    if rest.endswith(" ") or any(character < " " or character == "\x7f" for character in rest):
        _invalid(uri, field, "control characters and trailing spaces must be percent-encoded")
    if "#" in rest:
        _invalid(uri, field, "fragments are not allowed in path URIs; a # in a name is written %23")
    if "?" in rest:
        _invalid(uri, field, "query parameters are not allowed in path URIs; a ? in a name is written %3F")
    path = rest
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            _foreign(uri, field)
    # Without dot segments and empty ones. `%2e` is a dot, as for every URL parser.
    segments: list[str] = []
    for segment in path.replace("\\", "/").split("/"):
        dots = _DOTS.get(segment.lower()) if len(segment) <= 6 else None
        if dots == 2:
            del segments[-1:]
        elif segment and dots is None:
            if not segments and _is_drive(segment):
                _foreign(uri, field)
            segments.append(segment)
    native = b"/".join(_unquote(segment) for segment in segments)
    if b"\0" in native:
        _foreign(uri, field)
    parts = [part for part in native.split(b"/") if part]
    if b"." in parts or b".." in parts:
        # Only an encoded slash can hide a dot segment this long; no honest client writes one.
        _foreign(uri, field)
    return os.fsdecode(b"/" + b"/".join(parts))


def uri_from_path(path: str | os.PathLike[str]) -> str:
    """The canonical URI of an absolute native path: three slashes, no trailing one, bytes percent-encoded."""
    native = os.fsencode(native_path(path))
    plain = not native.translate(None, _SAFE_BYTES)
    encoded = native.decode() if plain else "".join([_QUOTED[byte] for byte in native])
    if _is_drive(encoded[1:].partition("/")[0]):
        encoded = f"{encoded[:2]}%3A{encoded[3:]}"
    return f"file://{encoded}"


def native_path(path: str | os.PathLike[str]) -> str:
    """The path as a URI would carry it: absolute, without `.`, `..`, doubled or trailing slashes."""
    native = os.fspath(path)
    if not native.startswith("/"):
        raise ExecError(f"path {_shown(native)} is not absolute: give the full path", INVALID_PARAMS)
    if "\0" in native:
        raise ExecError(f"path {_shown(native)} contains a NUL character", INVALID_PARAMS)
    try:
        os.fsencode(native)
    except UnicodeEncodeError as error:
        raise ExecError(f"path {_shown(native)} cannot be a file name: {error.reason}", INVALID_PARAMS) from error
    if "//" not in native and "/." not in native and not native.endswith("/"):
        return native
    parts: list[str] = []
    for part in native.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _unquote(segment: str) -> bytes:
    try:
        raw = segment.encode()
    except UnicodeEncodeError as error:
        raise ExecError(f"invalid URI: {_shown(segment)} contains a lone surrogate", INVALID_PARAMS) from error
    if b"%" not in raw:
        return raw
    head, *pieces = raw.split(b"%")
    decoded = bytearray(head)
    for piece in pieces:
        if len(piece) >= 2 and piece[0] in _HEX and piece[1] in _HEX:
            decoded.append(int(piece[:2], 16))
            decoded += piece[2:]
        else:
            decoded += b"%" + piece
    return bytes(decoded)


def _is_drive(segment: str) -> bool:
    return len(segment) == 2 and segment[1] in ":|" and segment[0].isascii() and segment[0].isalpha()


def _invalid(uri: str, field: str, reason: str) -> Never:
    raise ExecError(f"invalid URI: {reason} ({field} {_shown(uri)})", INVALID_PARAMS)


def _foreign(uri: str, field: str) -> Never:
    """A sound URI that names nothing on this kind of host."""
    code = INVALID_PARAMS if field == "cwd" else INVALID_REQUEST
    raise ExecError(f"{field} URI {_shown(uri)} is not valid on this host: expected file:///absolute/path", code)


def _shown(text: str) -> str:
    """The text quoted for a message: short, and safe to encode as UTF-8."""
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
