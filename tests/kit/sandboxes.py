"""The mechanisms that confine commands. Where one cannot work, the tests of it are skipped and say why."""

from __future__ import annotations

import pytest

from treadle.execution import HOST, Mechanism, Unusable


def usable(mechanism: Mechanism) -> Mechanism:
    found = HOST.bubblewrap()
    if mechanism == "bubblewrap" and isinstance(found, Unusable):
        pytest.skip(f"bubblewrap: {found.reason}")
    if mechanism == "landlock" and HOST.landlock() < 1:
        pytest.skip("landlock: this kernel does not offer it")
    return mechanism
