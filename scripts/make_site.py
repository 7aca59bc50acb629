"""Build the documentation into `site/` with zensical. A broken link or anchor is an error.

python scripts/make_site.py

The pages are those of `docs/`, and those that a forge wants at the top of a repository: contributing, changes. Links
between the two are made links of the site.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
DOCS: Final = REPOSITORY / "docs"
# As in zensical.toml. Both are made anew, so they are not read from there.
SOURCE: Final = REPOSITORY / "build" / "docs"
SITE: Final = REPOSITORY / "site"
FROM_THE_TOP: Final = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "index.md"}
# What a page would load by itself when it is opened.
LOADED: Final = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\s\"'>]+"
    r"|<link\b(?![^>]*\brel=[\"']?canonical)[^>]*\bhref=[\"']?(?:https?:)?//[^\s\"'>]+"
    r"|@import\s+[\"']?(?:url\([\"']?)?(?:https?:)?//[^\s\"')]+|\burl\([\"']?(?:https?:)?//[^\s\"')]+"
)


def main() -> int:
    gather_pages()
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=REPOSITORY, check=False)
    if done.returncode:
        return done.returncode
    foreign = sorted(set(loaded_from_elsewhere(SITE)))
    if foreign:
        print("pages load something from elsewhere:", *foreign, sep="\n  ", file=sys.stderr)
        return 1
    print(f"{len(list(SITE.glob('*.html')))} pages: {SITE.relative_to(REPOSITORY)}/index.html")
    return 0


def gather_pages() -> None:
    for folder in (SOURCE, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, SOURCE)
    for page in SOURCE.rglob("*.md"):
        page.write_text(within_the_site(page.read_text(encoding="utf-8"), "../"), encoding="utf-8")
    for name, page_name in FROM_THE_TOP.items():
        if page_name != "index.md":
            text = (REPOSITORY / name).read_text(encoding="utf-8").replace("](docs/", "](")
            (SOURCE / page_name).write_text(within_the_site(text, ""), encoding="utf-8")


def within_the_site(text: str, way: str) -> str:
    """Links to files at the top of the repository, which are pages here."""
    for name, page_name in FROM_THE_TOP.items():
        text = re.sub(rf"\]\({re.escape(way + name)}(#[^)]*)?\)", rf"]({page_name}\1)", text)
    return text


def loaded_from_elsewhere(site: Path) -> Iterator[str]:
    for path in site.rglob("*"):
        if path.suffix in (".html", ".css"):
            yield from (found[0] for found in LOADED.finditer(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    raise SystemExit(main())
