"""The events of a run under the import path that was named as fixed; `run_events` defines them."""

from treadle.runners.run_events import *  # noqa: F403
