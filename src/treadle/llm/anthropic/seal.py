"""What only this API can read, packed so that it survives in the neutral history: the proofs of thoughts, thoughts that
were encrypted, and blocks of kinds that are not known here.

A seal names its model: the API refuses the thoughts of one model in a request to another.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from treadle.llm.output_items import SEALED

_PREFIX: Final = SEALED + "anthropic:"


class Seal(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One of the three is there.

    Args:
        model: The model that wrote it.
        signature: Of a thought whose text is in the item.
        redacted: A thought that cannot be read.
        block: Any other block, as it came.
    """

    model: str
    signature: str | None = None
    redacted: str | None = None
    block: Raw = Raw()

    def packed(self) -> str:
        return _PREFIX + msgspec.json.encode(self).decode()


_seal = msgspec.json.Decoder(Seal)


def unpacked(text: str | None, model: str) -> Seal | None:
    """None for what another API or another model has made."""
    if text is None or not text.startswith(_PREFIX):
        return None
    try:
        seal = _seal.decode(text[len(_PREFIX) :])
    except (msgspec.DecodeError, RecursionError):
        return None
    return seal if seal.model == model else None
