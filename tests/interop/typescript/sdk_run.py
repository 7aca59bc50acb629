"""`SdkRun`: the official TypeScript SDK plays a scenario with one program, ours or the real one.

Owns the home, the model and the child; what the SDK saw is made comparable here, and nowhere else.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from interop.programs import MARK, ROOT
from treadle.testing import MockModel

DRIVER: Final = Path(__file__).with_name("drive.mjs")
MODEL: Final = "gpt-5.5"
RUN_SECONDS: Final = 120
# A black dot.
PIXEL: Final = base64.b64decode(
    b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
# Why a stream was cut, and what is on standard error, is told in the words of each program.
_OWN_WORDS: Final = re.compile(r"(?<=^Reconnecting\.\.\. \d/\d) \(.+\)$|(?<=exited with code \d): .*$", re.DOTALL)


class SdkRun:
    def __init__(self, sdk: Path, program: Path, folder: Path, model: MockModel) -> None:
        self._sdk = sdk
        self._program = program
        self._root = folder
        self.model = model
        self.workspace = folder / "workspace"
        self.home = folder / "home"
        self.workspace.mkdir(parents=True)
        self.home.mkdir()
        (folder / "px.png").write_bytes(PIXEL)

    def play(self, scenario: str, provider: Mapping[str, Any], **settings: Any) -> Any:
        """What the SDK saw, with what differs from run to run made the same."""
        text = self._drive(scenario, {**self._settings(provider), **settings})
        return self._normal(json.loads(text), {})

    def processes(self) -> list[int]:
        """What the program has started, in whatever session or group, and itself."""
        wanted = f"{MARK}={self._root}".encode()
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (place / "environ").read_bytes().split(b"\0"):
                    found.append(int(place.name))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # gone in between, or not ours
        return found

    def sweep(self) -> None:
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _settings(self, provider: Mapping[str, Any]) -> dict[str, Any]:
        table = {
            "name": "mock",
            "base_url": self.model.base_url,
            "wire_api": "responses",
            "supports_websockets": False,
            "request_max_retries": 0,
            "stream_max_retries": 0,
        }
        env = {
            "HOME": str(self.home),
            "CODEX_HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT / "src"),
            MARK: str(self._root),
        }
        config = {"model_provider": "mock", "model_providers": {"mock": {**table, **provider}}}
        return {
            "program": str(self._program),
            "env": env,
            "config": {**config, "analytics": {"enabled": False}, "check_for_update_on_startup": False},
            "model": MODEL,
            "workspace": str(self.workspace),
            "image": str(self._root / "px.png"),
        }

    def _drive(self, scenario: str, settings: Mapping[str, Any]) -> str:
        child = subprocess.Popen(
            ["node", str(DRIVER), str(self._sdk), scenario],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = child.communicate(json.dumps(settings), timeout=RUN_SECONDS)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
        assert child.returncode == 0, err
        return out

    def _normal(self, value: Any, ids: dict[str, str]) -> Any:
        """Ids become numbers in the order of their appearance, so that equal ones stay equal."""
        if isinstance(value, dict):
            return {name: self._normal(member, ids) for name, member in value.items()}
        if isinstance(value, list):
            return [self._normal(member, ids) for member in value]
        if not isinstance(value, str):
            return value
        text = _OWN_WORDS.sub("", value.replace(str(self._root), "$ROOT"))
        name: Callable[[re.Match[str]], str] = lambda found: ids.setdefault(found[0], f"$ID{len(ids)}")  # noqa: E731
        return _UUID.sub(name, text)
