"""What the commands of the soak run: it notes what it does in files, and prints the same. Run as a file.

    worker.py NAME FOLDER lines COUNT PAUSE BURST CODE    numbered lines, in odd pieces; BURST bytes in the middle
    worker.py NAME FOLDER typed CODE                      notes what is typed, until `end`, or until nobody types

`FOLDER/ran` gets the name each time, so that a command that ran twice is seen; `FOLDER/NAME.truth` has what was
printed. It is written first: what was printed is always the beginning of it.
"""

from __future__ import annotations

import os
import select
import sys
import time

PIECE = 47  # bytes, in the middle of characters
IDLE_S = 20.0
IDLE_CODE = 9


def note(path: str, data: bytes) -> None:
    end = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(end, data)
    os.close(end)


def say(truth: str, text: str) -> None:
    data = text.encode()
    note(truth, data)
    while data:
        data = data[os.write(1, data[:PIECE] if len(data) < 4096 else data) :]


def is_typed(stop: str) -> bool:
    """Whether somebody types, in time; the file says that nobody will."""
    end = time.monotonic() + IDLE_S
    while time.monotonic() < end and not os.path.exists(stop):
        if select.select([0], [], [], 0.2)[0]:
            return True
    return False


def main() -> int:
    name, folder, kind = sys.argv[1:4]
    truth = f"{folder}/{name}.truth"
    note(f"{folder}/ran", f"{name} {os.getpid()}\n".encode())
    if kind == "typed":
        import termios

        modes = termios.tcgetattr(0)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(0, termios.TCSANOW, modes)
        say(truth, "ready\n")
        while is_typed(f"{folder}/{name}.stop") and (line := os.read(0, 4096)):  # a terminal gives one line
            note(f"{folder}/{name}.typed", line)
            say(truth, f"got {line.decode()}")
            if line == b"end\n":
                return int(sys.argv[4])
        return IDLE_CODE
    count, pause, burst = int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])
    for number in range(count):
        say(truth, f"{name} {number} äöü € 😀\n")
        if number == count // 2 and burst:
            say(truth, "".join(f"{name} {number}.{part} {'x' * 900}\n" for part in range(burst // 920)))
        time.sleep(pause)
    return int(sys.argv[7])


if __name__ == "__main__":
    sys.exit(main())
