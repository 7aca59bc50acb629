"""What `treadle run` was asked to do, resolved into a run: which engine, session, prompt and folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import Struct

from treadle.cli.problem import Problem
from treadle.cli.streams import REFUSED
from treadle.cli.turn_input import read_prompt, read_schema, readable_images, working_folder
from treadle.execution import Environment
from treadle.execution.worktrees import Worktrees
from treadle.runners.engine import Engine, Timeouts, UnknownEngine
from treadle.runners.engine_registry import engine_names, find_engine, make_runner
from treadle.runners.message_router import EngineEntry, Router
from treadle.runners.projects import Projects
from treadle.runners.run_events import ResumeToken
from treadle.runners.runner import Runner

DEFAULT: Final = "treadle"
VARIABLE: Final = "TREADLE_ENGINE"
# Engines that take settings of ours, in front of their own arguments.
_TAKES_SETTINGS: Final = ("codex", "treadle")


class PlanError(Problem):
    """The run cannot be done as requested."""

    def __init__(self, what: str, *, why: str | None = None, do: str | None = None) -> None:
        super().__init__(what, why=why, do=do, code=REFUSED)


class RunArguments(Struct, frozen=True, kw_only=True):
    """The command line. `further` are the arguments behind `--`, for the engine."""

    prompt: str | None = None
    engine: str | None = None
    resume: str | None = None
    model: str | None = None
    effort: str | None = None
    cd: str | None = None
    project: str | None = None
    branch: str | None = None
    image: tuple[str, ...] = ()
    output_schema: str | None = None
    output_last_message: str | None = None
    timeout: float | None = None
    idle_timeout: float | None = None
    as_json: bool = False
    color: str = "auto"
    config_overrides: tuple[str, ...] = ()
    further: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run before it starts.

    Args:
        engine: Its name.
        prompt: What it is asked.
        resume: The session that it continues, if it does.
        project: The project that it works in, by its short name.
        branch: The branch of it.
        notice: Something that the user should know about how it was understood.
    """

    engine: str
    prompt: str
    resume: ResumeToken | None = None
    project: str | None = None
    branch: str | None = None
    notice: str | None = None


def read_plan(arguments: RunArguments) -> RunPlan:
    """The plan of a command line. Reads standard input when the prompt is there.

    What an option sets is not looked for in the text: with `--engine` or `--resume` the text is for the engine, as it
    is. What is piped in beside a prompt never decides anything.
    """
    engine, given = arguments.engine, arguments.prompt
    if engine is not None or arguments.resume is not None:
        resume = None if arguments.resume is None else read_resume(arguments.resume, engine)
        chosen = _find(resume.engine if resume is not None else engine or DEFAULT).name
        plan = RunPlan(chosen, read_prompt(given, command="run"), resume, arguments.project, arguments.branch)
    elif given is None or given == "-":
        plan = _routed(read_prompt(given, command="run"), arguments)
    else:
        plan = _routed(given, arguments)
        plan = replace(plan, prompt=read_prompt(plan.prompt, command="run"))
    if plan.branch is not None and plan.project is None:
        why = "a branch is one of a project, and none is named"
        raise PlanError(f"which project's branch is {plan.branch!a}?", why=why, do="--project NAME")
    return plan


def _routed(text: str, arguments: RunArguments) -> RunPlan:
    """The text itself may name a session, an engine, a project and a branch."""
    projects = Projects()
    engines = projects.engines()
    usual = None if arguments.project is None else projects.find(arguments.project).engine
    default = _find(usual or os.environ.get(VARIABLE) or DEFAULT).name
    # Whether a program is installed is seen when it is started, and reported in the same way for all.
    route = Router([EngineEntry.of(engine) for engine in _engines(default)], default, engines).resolve(text)
    return RunPlan(
        route.engine,
        route.prompt,
        route.resume,
        _one("project", arguments.project, route.project),
        _one("branch", arguments.branch, route.branch),
        route.notice,
    )


def _one(what: str, option: str | None, named: str | None) -> str | None:
    if option is not None and named is not None and option != named:
        why = f"the option says {option!a}, and the prompt says {named!a}"
        raise PlanError(f"there can be one {what}, and two were named", why=why, do="leave one out")
    return option or named


def read_resume(text: str, engine: str | None) -> ResumeToken:
    """The session that somebody means: a resume line, `engine:id`, or an id of the engine that was named."""
    if engine is not None:
        _find(engine)
    engines = {found.name: found for found in _engines(engine)}
    name, colon, rest = text.strip().partition(":")
    if colon and name in engine_names():
        token: ResumeToken | None = ResumeToken(name, rest)
        engines[name] = _find(name)
    elif engine is not None and engines[engine].resume.fits(text.strip()):
        token = ResumeToken(engine, text.strip())
    else:
        token = next((found for known in engines.values() if (found := known.resume.extract(text))), None)
    if token is None:
        raise _not_a_session(text, engine, engines)
    if engine is not None and token.engine != engine:
        why = f"this is a session of {token.engine}, not of {engine}"
        raise PlanError(f"{engine} cannot resume it", why=why, do="the same again without --engine")
    if not engines[token.engine].resume.fits(token.value):
        raise _not_a_session(text, token.engine, engines)
    return token


async def folder_of(plan: RunPlan, given: str | None) -> str:
    """Where it works: the folder that was given, seen from that of the project or of its branch, which may be made."""
    top = "."
    if plan.project is not None:
        project = Projects().find(plan.project)
        async with await Environment.connect(None) as machine:
            top = await Worktrees(project, machine).folder(plan.branch)
    return working_folder(os.path.join(top, given or ""))


def runner_of(plan: RunPlan, arguments: RunArguments, cwd: str) -> Runner:
    """The engine with the user's choices."""
    settings: Sequence[str] = arguments.config_overrides
    engine, images = _find(plan.engine), readable_images(arguments.image)
    read_schema(schema := arguments.output_schema)
    if images and not engine.takes_images:
        raise PlanError(f"{plan.engine} cannot be given pictures", do="name the file in the prompt")
    if schema is not None and not engine.takes_schema:
        do = "ask for that form in the prompt, or use codex, claude or treadle"
        raise PlanError(f"{plan.engine} cannot be held to a JSON Schema", do=do)
    if settings and plan.engine not in _TAKES_SETTINGS:
        why = "its settings are its own"
        raise PlanError(f"{plan.engine} takes no -c", why=why, do=f"treadle run -e {plan.engine} … -- ITS_OPTIONS")
    extra = [*(word for setting in settings for word in ("-c", setting)), *arguments.further]
    try:
        return make_runner(
            plan.engine,
            extra_args=extra,
            cwd=cwd,
            model=arguments.model,
            effort=arguments.effort,
            images=images,
            output_schema=None if schema is None else os.path.abspath(schema),
            timeouts=Timeouts(total=arguments.timeout, idle=arguments.idle_timeout),
        )
    except ValueError as error:  # a word that the engine's runner sets itself
        raise PlanError(f"{plan.engine} cannot be started so", why=str(error), do="leave that option out") from None


def _find(name: str) -> Engine[Any]:
    try:
        return find_engine(name)
    except UnknownEngine as error:
        raise PlanError(
            f"there is no engine {name!r} to run", why=error.reason, do="treadle engines shows them"
        ) from None


def _engines(engine: str | None) -> Iterator[Engine[Any]]:
    """The engines that a session may belong to. What cannot be loaded has none."""
    for name in engine_names() if engine is None else (*engine_names(), engine):
        try:
            yield find_engine(name)
        except UnknownEngine:
            continue


def _not_a_session(text: str, engine: str | None, engines: dict[str, Engine[Any]]) -> PlanError:
    if engine is not None:
        line = engines[engine].resume.written.format("ID")
        why = f"{engine} writes them otherwise"
        return PlanError(f"{text!a} is no session of {engine}", why=why, do=f"give its full id, or the line `{line}`")
    fitting = [name for name, known in engines.items() if known.resume.fits(text.strip())]
    if fitting:
        do = f"--resume {fitting[0]}:{text}, or --engine {'|'.join(fitting)}"
        return PlanError(f"whose session is {text!a}?", why=f"{' and '.join(fitting)} write them so", do=do)
    do = "give ENGINE:ID, a full id with --engine, or the line that a run ended with"
    return PlanError(f"{text!a} is no session", why="no engine writes them so", do=do)
