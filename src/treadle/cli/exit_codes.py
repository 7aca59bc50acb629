"""How the program ends."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
"""It was tried and did not work."""
REFUSED: Final = 2
"""Wrong usage or configuration: nothing was run."""
INTERRUPTED: Final = 130
"""Ended by Ctrl-C."""
