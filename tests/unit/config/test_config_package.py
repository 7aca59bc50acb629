"""The package: its names, and what their use loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import treadle.config

DEADLINE_S = 100


def _modules_after(code: str, *arguments: str) -> set[str]:
    script = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    source = Path(treadle.config.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(source)!r})\n{script}", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout)
    assert isinstance(names, list)
    return set(names)


def test_every_public_name_is_there() -> None:
    assert dir(treadle.config) == sorted(treadle.config.__all__)
    for name in treadle.config.__all__:
        assert getattr(treadle.config, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        treadle.config.no_such_name  # noqa: B018


def test_the_import_loads_next_to_nothing() -> None:
    loaded = _modules_after("import treadle.config")
    assert {name for name in loaded if name.startswith("treadle.")} == {
        "treadle._version",
        "treadle.config",
        "treadle.internal_names",
    }
    assert "msgspec" not in loaded


LOAD = "from pathlib import Path\nfrom treadle.config import load_config\nload_config(Path(sys.argv[1]), environ={})"


def test_toml_is_read_only_where_there_is_some(tmp_path: Path) -> None:
    loaded = _modules_after(LOAD, str(tmp_path))
    assert "treadle.config.configuration" in loaded
    assert not loaded & {"tomllib", "hashlib", "difflib", "fcntl", "treadle.config.toml_edit", "httpx2", "asyncio"}
    (tmp_path / "config.toml").write_text('model = "offline"')
    assert "tomllib" in _modules_after(LOAD, str(tmp_path))
