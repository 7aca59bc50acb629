import os
import sys

# With `-m` the working directory is on the path: a `msgspec.py` of the project in it would be taken for ours.
if not sys.flags.safe_path and sys.path[0] != os.path.dirname(os.path.dirname(__file__)):
    del sys.path[0]

from treadle.cli import main

raise SystemExit(main())
