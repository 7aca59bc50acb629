"""The pictures of the terminal in the documentation show what is really printed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import treadle

REPOSITORY = Path(treadle.__file__).parents[2]
PICTURES = REPOSITORY / "docs" / "pictures"
SYSTEM_PATH = "/usr/bin:/bin"


@pytest.mark.skipif(not shutil.which("bwrap", path=SYSTEM_PATH), reason="the pictures are of a machine with bubblewrap")
@pytest.mark.parametrize("name", ["run", "chat", "threads", "doctor"])
def test_a_picture_shows_what_is_printed(name: str) -> None:
    if name == "doctor" and any(
        shutil.which(engine, path=SYSTEM_PATH) for engine in ("codex", "claude", "opencode", "pi")
    ):
        pytest.skip("the picture is of a machine without other agents")
    command = [sys.executable, "-m", "scripts.make_pictures", "--check", name]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_a_picture_tells_nothing_of_the_machine_it_was_made_on() -> None:
    pictures = sorted(PICTURES.glob("*.svg"))
    assert pictures
    for picture in pictures:
        paths = re.findall(r"(?<![\w/.~;])/\w[\w./-]*", re.sub(r"<[^>]*>", " ", picture.read_text()))
        strange = [path for path in paths if not path.startswith(("/home/you/", "/usr/", "/help"))]
        assert strange == [], picture.name
