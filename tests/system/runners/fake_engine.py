"""Engines that are tiny scripts: what a test writes is what the program does, in the words of `codex exec --json`."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

SESSION = "019b73c4-0c3f-7701-a0bb-aac6b4d8a3bc"
OTHER = "123e4567-e89b-12d3-a456-426614174000"


def first_lines() -> str:
    """What makes a file a program for this Python. A `#!` line cannot name a path with a space in it: then a shell
    starts Python, which takes the shell's line for a text."""
    if " " not in sys.executable:
        return f"#!{sys.executable} -IS"
    return f"#!/bin/sh\n'''exec' \"{sys.executable}\" -IS \"$0\" \"$@\"\n' '''"


_PRELUDE = f"""\
{first_lines()}
import json, os, signal, subprocess, sys, time
SESSION = {SESSION!r}
HERE = os.path.dirname(os.path.abspath(__file__))

def say(**message):
    sys.stdout.write(json.dumps(message) + "\\n")
    sys.stdout.flush()

def start(session=SESSION):
    say(type="thread.started", thread_id=session)
    say(type="turn.started")

def answer(text):
    say(type="item.completed", item=dict(id="item_9", type="agent_message", text=text))

def done(**usage):
    say(type="turn.completed", usage=usage)

def mark(name, text=""):
    with open(os.path.join(HERE, name + ".new"), "w") as file:
        file.write(text)
    os.replace(os.path.join(HERE, name + ".new"), os.path.join(HERE, name))

def hang():
    # Not one long sleep: a signal that comes just before it would be handled after it.
    while True:
        time.sleep(0.05)

def wait_for(name):
    while not os.path.exists(os.path.join(HERE, name)):
        time.sleep(0.005)

"""


def fake(folder: Path, script: str, name: str = "codex") -> str:
    """A program that runs `script`, with `say`, `start`, `answer`, `done`, `mark`, `hang` and `wait_for` to help."""
    path = folder / name
    path.write_text(_PRELUDE + dedent(script))
    path.chmod(0o755)
    return str(path)
