"""An image for containers, made of the Python, the shell and a few programs of this machine: nothing is fetched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

_OLD: Final = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1")
PROGRAMS: Final = ("sh", "cat", "env", "id", "ls", "mkdir", "sleep", "true", "uname")
_LEFT_OUT: Final = re.compile(
    r"/(site-packages|test|tests|idlelib|tkinter|ensurepip|lib2to3|__pycache__|config-[^/]*)$"
)


def write_image(path: Path) -> Path:
    """Write it as an archive that `podman import` takes."""
    base = os.path.realpath(sys.base_prefix)
    python = os.path.realpath(sys.executable)
    library = os.path.dirname(os.__file__)
    extensions = [str(each) for each in Path(library, "lib-dynload").glob("*.so")]
    programs = [found for name in PROGRAMS if (found := shutil.which(name, path="/usr/bin:/bin")) is not None]
    libraries = _libraries([python, *programs, *extensions])
    with tarfile.open(path, "w") as archive:

        def wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
            return None if _LEFT_OUT.search(f"/{member.name}") else member

        archive.add(library, library, filter=wanted)
        for each in {python, *libraries}:
            _add(archive, each, each)
        for each in programs:
            _add(archive, each, f"/usr/bin/{os.path.basename(each)}")
        # Where programs look for the shell, for Python, and for what a program is loaded by.
        for name, leads_to in (("/bin", "usr/bin"), ("/usr/bin/python3", python)):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, leads_to
            archive.addfile(link)
        for name in ("/tmp", "/root", "/etc", base):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "/tmp" else 0o755
            archive.addfile(folder)
    return path


def _libraries(programs: list[str]) -> set[str]:
    """The paths by which the loader finds the shared libraries of programs, itself among them."""
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, timeout=60).stdout
    found = set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listed, re.MULTILINE))
    # What modules that are copied in name besides; it is a part of the C library.
    folders = {os.path.dirname(each) for each in found if os.path.basename(each).startswith("libc.so")}
    return found | {path for folder in folders for name in _OLD if os.path.exists(path := os.path.join(folder, name))}


def _add(archive: tarfile.TarFile, path: str, name: str) -> None:
    """The file that a path leads to."""
    archive.add(os.path.realpath(path), name, recursive=False)
