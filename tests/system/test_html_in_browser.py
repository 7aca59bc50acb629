"""The exported page in a real browser: nothing runs, nothing is fetched, nothing is complained about."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from thread_samples import MARK, PNG, hostile_thread, rich_thread, written
from treadle.pages import HtmlPage
from treadle.protocol.app import Thread

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DEADLINE = 90

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")


def opened(whole: Thread, tmp_path: Path) -> tuple[str, str]:
    """The document as the browser has it after everything has run, and what it complained about."""
    page = tmp_path / "thread.html"
    page.write_text(written(HtmlPage(), whole))
    command = [
        *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        "--host-resolver-rules=MAP * ~NOTFOUND",  # it stays on this machine
        *("--enable-logging=stderr", "--virtual-time-budget=3000", f"--user-data-dir={tmp_path / 'profile'}"),
        *("--dump-dom", page.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def test_a_rich_page_opens_without_complaints(tmp_path: Path) -> None:
    picture = tmp_path / "screen.png"
    picture.write_bytes(PNG)
    document, complaints = opened(rich_thread(str(picture)), tmp_path)
    assert complaints == ""
    assert "<title>Flaky retry test</title>" in document
    assert "exported by Treadle</footer>" in document


def test_a_hostile_page_does_nothing(tmp_path: Path) -> None:
    document, complaints = opened(hostile_thread(), tmp_path)
    assert complaints == ""  # a script or a request that the policy stops would be one
    assert f"<title>{MARK}</title>" not in document
    assert "exported by Treadle</footer>" in document
    for tag in ("<script", "<iframe", "<b ", "<textarea"):
        assert tag not in document
