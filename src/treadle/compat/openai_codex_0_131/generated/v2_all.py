"""All values of the protocol: those of `treadle.types`."""

from treadle.types import *  # noqa: F403
