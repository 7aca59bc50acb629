"""The program that plays with one SDK: `python -m bench.sdk.player MODULE PLAY OPTIONS`, values as JSON on its output.

The parent side is `interpreters`.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys

from bench.sdk.plays import PLAYS, PlayFailed


def main() -> int:
    # For this process only: a server that it starts must not find the SDK's packages.
    os.environ.pop("PYTHONPATH", None)
    module, play, options = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints may look like an answer
    faulthandler.enable()
    try:
        values = PLAYS[play](module, **json.loads(options))
    except PlayFailed as error:
        print(f"{module}: {error}", file=sys.stderr)
        return 1
    answers.write(json.dumps(values))
    answers.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
