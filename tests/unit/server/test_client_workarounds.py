"""What is done for the sake of single clients: for those in the table, and for nobody else."""

from __future__ import annotations

from treadle.server import BY_CLIENT, NONE, workarounds_for


def test_only_the_clients_in_the_table_get_something() -> None:
    assert workarounds_for("codex_python_sdk").turn_min_s > 0
    for name in ("", "codex", "CODEX_PYTHON_SDK", "codex_python_sdk2"):
        assert workarounds_for(name) is NONE
    assert NONE.turn_min_s == 0
    assert NONE not in BY_CLIENT.values()
