"""How deep JSON may be nested: as deep as the Codex app-server allows, which is far less than our parser does.

Deeper JSON would pass the parser but could still overflow the stack of code that walks it recursively, depending on how
deep the call stack already is. So it is rejected on arrival.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final

MAX_DEPTH: Final = 128
TOO_DEEP: Final = f"nested more than {MAX_DEPTH} levels deep"

_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_STRING: Final = re.compile(rb'"[^"]*"?')
_TEXT: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STEP: Final = [1 if byte in b"[{" else -1 if byte in b"]}" else 0 for byte in range(256)]


def is_too_deep(data: bytes) -> bool:
    """Whether arrays and objects lie deeper in each other than `MAX_DEPTH`. Linear, and quick for what is not."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    brackets = _STRING.sub(b"", _ESCAPE.sub(b"", data).translate(None, _TEXT))
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_DEPTH
