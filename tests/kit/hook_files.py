"""Hook files for servers, ours or the real one: a home with a hook, and the trust that its user has in it."""

from __future__ import annotations

import json
from pathlib import Path

from treadle.hooks import read_hooks


def refusing(home: Path, word: str, reason: str) -> str:
    """Have `home` refuse commands with a word in them; returns what its config.toml has to say for that."""
    command = f"grep -q {word} && {{ echo '{reason}' >&2; exit 2; }}; exit 0"
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": command}]}]}
    path = home / "hooks.json"
    path.write_text(json.dumps({"hooks": hooks}))
    return trusted(path)


def trusted(path: Path) -> str:
    """What config.toml says once the user has trusted all hooks of a file."""
    found = read_hooks(json.loads(path.read_text())["hooks"], str(path), "user").hooks
    return "".join(f"[hooks.state.{json.dumps(hook.key)}]\ntrusted_hash = {json.dumps(hook.hash)}\n" for hook in found)
