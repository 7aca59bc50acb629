"""`OpaqueBlock`: content that only the Messages API can read, packed so that it survives in the neutral history.

That is signatures of thinking, redacted (encrypted) thinking, and block types that we do not know. It names its model:
the API rejects the thinking of one model in a request to another.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from treadle.llm.output_items import OPAQUE_PREFIX

_PREFIX: Final = OPAQUE_PREFIX + "anthropic:"


class OpaqueBlock(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Exactly one of the last three is set.

    Args:
        model: The model that wrote it.
        signature: The signature of thinking whose text is in the item.
        redacted: Thinking that only the server can decrypt.
        block: Any other block, verbatim.
    """

    model: str
    signature: str | None = None
    redacted: str | None = None
    block: Raw = Raw()

    def packed(self) -> str:
        return _PREFIX + msgspec.json.encode(self).decode()


_decoder = msgspec.json.Decoder(OpaqueBlock)


def unpacked(text: str | None, model: str) -> OpaqueBlock | None:
    """None if another API or another model wrote it."""
    if text is None or not text.startswith(_PREFIX):
        return None
    try:
        opaque = _decoder.decode(text[len(_PREFIX) :])
    except (msgspec.DecodeError, RecursionError):
        return None
    return opaque if opaque.model == model else None
