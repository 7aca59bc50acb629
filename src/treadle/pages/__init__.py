"""What people see of threads, whatever shows it: items as blocks, figures, safe texts, and a thread as one HTML page.

`view_blocks` is where to begin: it makes blocks of items. `page` is a thread in some format, and `html_page` the format
that needs nothing but a browser; the command line has the others, and draws blocks on terminals. Pure: nothing is read
or sent, and nothing here knows the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.internal_names import internal_name


def __getattr__(name: str) -> object:
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.pages.figures import ago, at_home, count, duration, money, took, when
    from treadle.pages.html_page import HtmlPage
    from treadle.pages.html_text import MAX_BYTES, MAX_MARKDOWN, Pictures, rendered
    from treadle.pages.inset import thread_html
    from treadle.pages.page import Heading, JsonPage, Page, ThreadExtras, Tokens, title_of
    from treadle.pages.safe_text import printable, printable_line
    from treadle.pages.view_blocks import ChangeBlock, Picture, ToolBlock, item_blocks, sent_key
