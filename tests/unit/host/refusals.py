"""`refused`: what a store of the host must not take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from treadle.host import Refused


@contextmanager
def refused(kind: str, words: str = "") -> Iterator[None]:
    with pytest.raises(Refused) as caught:
        yield
    assert caught.value.kind == kind, caught.value
    assert words in str(caught.value)
