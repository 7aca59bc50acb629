"""`Router`: which engine, session, project and branch a person's message is for. Pure.

    /claude /web @fix-login why does the login
    fail on Mondays?

A session that is named on a line of its own (`codex resume …`, in the text or in the text that it replies to) decides
the engine. Else the words before the text do, else the project's engine, else the default. All else is the prompt, as
it was written: an unknown `/word` may be a command of the engine itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from treadle.errors import ArgumentValueError, TreadleError
from treadle.execution.worktrees import branch_problem
from treadle.runners.engine import Engine, ResumeLine
from treadle.runners.run_events import ResumeToken

# What is asked when a session is taken up without a word.
CONTINUE: Final = "continue"

RouteProblem: TypeAlias = Literal["bad_branch", "duplicate", "empty", "unavailable", "unknown_engine"]

# `/web@some_bot` is how chats name the bot that is meant.
_COMMAND: Final = re.compile(r"/(?P<name>[A-Za-z0-9][A-Za-z0-9_-]*)(?:@\w+)?")
_WORD: Final = re.compile(r"\S+")


class RouteError(TreadleError):
    """What was written cannot go anywhere.

    Args:
        message: Why, and what to write instead, for people.
        kind: Which of these it is.
        engine: The engine that it is about, if it is about one.
    """

    def __init__(self, message: str, kind: RouteProblem, engine: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.engine = engine


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEntry:
    """An engine as far as routing goes.

    Args:
        name: What it is called, in lower case.
        resume: How its sessions are written.
        status: Whether it can be used.
        advice: When it is missing: what a person types to get it.
    """

    name: str
    resume: ResumeLine
    status: Literal["ok", "missing"] = "ok"
    advice: str = ""

    @classmethod
    def of(cls, engine: Engine[Any], *, missing: bool = False) -> EngineEntry:
        """The entry of an engine.

        Args:
            engine: The engine.
            missing: Whether its program was not found.
        """
        status: Literal["ok", "missing"] = "missing" if missing else "ok"
        return cls(name=engine.name, resume=engine.resume, status=status, advice=engine.install)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a text goes.

    Args:
        engine: The engine that runs it.
        prompt: What it is asked.
        resume: The session that goes on; None for a new one.
        project: The alias of the project that was named.
        branch: The branch that was named.
        notice: What was written and did not count, for people.
    """

    engine: str
    prompt: str
    resume: ResumeToken | None = None
    project: str | None = None
    branch: str | None = None
    notice: str | None = None


@dataclass(slots=True)
class _Directives:
    engine: str | None = None
    project: str | None = None
    branch: str | None = None


class Router:
    """Finds where a text goes. It knows names only: it starts nothing and looks at no file.

    Args:
        engines: All engines, also those that are missing: a person may ask for them.
        default: The engine for texts that name none.
        projects: The aliases of the projects, each with its engine if it has one. An engine of the same name is meant
            before a project.
    """

    def __init__(
        self, engines: Iterable[EngineEntry], default: str, projects: Mapping[str, str | None] | None = None
    ) -> None:
        self._engines = {entry.name: entry for entry in engines}
        self._projects = dict(projects or {})
        if default not in self._engines:
            known = ", ".join(self._engines) or "none"
            raise ArgumentValueError("default", f"default must be one of the engines ({known}), not {default!r}")
        self._default = default

    def resolve(self, text: str, reply_text: str | None = None) -> Route:
        """Where a text goes. Raises `RouteError` when it cannot go anywhere.

        Args:
            text: What was written.
            reply_text: The text that it replies to.
        """
        session, text = self._session(text)
        directives, text = self._directives(text)
        # Behind directives there may be one more, which then stands alone.
        behind, prompt = self._session(text)
        resume = session or behind or self._session(reply_text or "")[0]
        if not prompt.strip():
            if resume is None:
                raise RouteError("there is nothing to do yet: write what should be done", "empty")
            prompt = CONTINUE
        notice = None
        if resume is not None and directives.engine not in (None, resume.engine):
            notice = f"/{directives.engine} does not count here: the session belongs to {resume.engine}"
        usual = None if directives.project is None else self._projects[directives.project]
        engine = resume.engine if resume else directives.engine or usual or self._default
        usable = [entry.name for entry in self._engines.values() if entry.status == "ok"]
        others = f"; or begin with {' or '.join(f'/{other}' for other in usable)}" if usable else ""
        entry = self._engines.get(engine)
        if entry is None:
            raise RouteError(
                f"there is no engine `{engine}`: correct the project's engine{others}", "unknown_engine", engine
            )
        if entry.status != "ok":
            raise RouteError(
                f"{engine} is not installed: {entry.advice or 'install it'}{others}", "unavailable", engine
            )
        return Route(
            engine=engine,
            prompt=prompt,
            resume=resume,
            project=directives.project,
            branch=directives.branch,
            notice=notice,
        )

    # --- sessions ---

    def _session(self, text: str) -> tuple[ResumeToken | None, str]:
        """The last session that is named, whichever engine it is of, and the text without the lines that name any.

        Blank lines that are then at an end go too.
        """
        lines = (line for entry in self._engines.values() for line in entry.resume.find(text))
        found = sorted(lines, key=lambda line: line[0])
        if not found:
            return None, text
        pieces, at = [], 0
        for start, end, _ in found:
            pieces.append(text[at:start])
            at = max(at, end + 1)  # with its line end
        rest = "".join([*pieces, text[at:]])
        last = max(found, key=lambda line: line[0])  # of two engines that write it alike, the first
        blank = rest.find("\n", len(rest.rstrip()))
        return last[2], rest[_blank_lines(rest) : len(rest) if blank < 0 else blank]

    # --- directives ---

    def _directives(self, text: str) -> tuple[_Directives, str]:
        found = _Directives()
        at = end = 0
        line_end = text.find("\n", _blank_lines(text))  # of the first line that is not blank
        line_end = len(text) if line_end < 0 else line_end
        while word := _WORD.search(text, at, line_end):
            if not self._take(found, word[0]):
                end = word.start()
                break
            at = end = word.end()
        if at == 0:
            return found, text
        rest = text[end:]
        # Nothing else on that line: it goes with its end.
        return found, rest[_blank_lines(rest) :] if end == at else rest

    def _take(self, found: _Directives, word: str) -> bool:
        """Take a word that names an engine, a project or a branch; whether it does."""
        if word.startswith("@") and len(word) > 1:
            problem = branch_problem(word[1:])
            if problem is not None:
                advice = "write some other word first if it belongs to the text"
                raise RouteError(f"`{word}` names no branch: {problem}; {advice}", "bad_branch")
            _put(found, "branch", word[1:])
            return True
        command = _COMMAND.fullmatch(word)
        name = command["name"].lower() if command else ""
        if name in self._engines:
            _put(found, "engine", name)
        elif name in self._projects:
            _put(found, "project", name)
        else:
            return False
        return True

    # --- engines ---


def _blank_lines(text: str) -> int:
    """The end of the blank lines at its beginning."""
    blank = len(text) - len(text.lstrip())
    return text.rfind("\n", 0, blank) + 1


def _put(found: _Directives, what: Literal["engine", "project", "branch"], value: str) -> None:
    earlier = getattr(found, what)
    mark = "@" if what == "branch" else "/"
    if earlier is not None:
        message = f"there can be one {what}, and {mark}{earlier} and {mark}{value} are two: leave one out"
        raise RouteError(message, "duplicate", value if what == "engine" else None)
    setattr(found, what, value)
