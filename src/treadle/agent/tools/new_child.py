"""A new sub-agent: its settings, which allow no more than those of its parent, its name, what it has seen, and a git
worktree of its own if it is to have one.
"""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct, structs

from treadle.agent.thread.authority import confined_to
from treadle.agent.thread.thread import remote_places
from treadle.agent.thread.thread_children import NOTIFICATION, NewChild
from treadle.agent.thread.thread_state import DEFAULT_MODEL, ENGINE, LOCAL, AgentPlace, Settings, check_provider
from treadle.agent.turn.pending_input import MAX_PREVIEW
from treadle.config.layers import join_key, split_key
from treadle.errors import RpcError, TreadleError
from treadle.execution.bounded_reads import read_in_thread
from treadle.execution.sandbox.policy import Policy, policy_from_wire
from treadle.execution.sandbox.profile_sandbox import (
    WORKSPACE_ROOTS,
    Confinement,
    ProfileRule,
    ProfileSandbox,
    narrowed,
)
from treadle.execution.sandbox.sandbox_modes import is_unconfined, sandbox_for
from treadle.llm.catalogue import known_model
from treadle.llm.known_providers import KNOWN
from treadle.skills.skill_files import EVERY_SKILL, rule_for
from treadle.tools.specs import ToolInputError, built_in_names

if TYPE_CHECKING:
    from treadle.agent.agent_roles import AgentRole, Roles
    from treadle.agent.thread.thread import Thread
    from treadle.agent.tools.agent_tools import SpawnArguments
    from treadle.agent.turn.turn import Turn
    from treadle.config import Config
    from treadle.execution import Environment
    from treadle.execution.worktrees import Git

logger: logging.Logger = logging.getLogger(__name__)
# A role that lists one of these among its tools may have sub-agents of its own.
AGENT_TOOL_NAMES: Final = frozenset({"multi_agent_v1", "spawn_agent"})


async def new_child(
    turn: Turn, child_id: str, given: SpawnArguments, roles: Roles, preview: str
) -> tuple[NewChild, dict[str, object]]:
    """The child, and what the answer to its parent says besides its name. Raises `ToolInputError`."""
    thread, settings = turn.thread, turn.settings
    config = thread.services.config_for(settings)
    if given.fork_context and given.agent_type is not None:
        raise ToolInputError(
            "Full-history forked agents inherit the parent agent type; omit agent_type, or spawn without a "
            "full-history fork."
        )
    parent = thread.state.agent
    name = given.agent_type or (parent.role if given.fork_context and parent is not None else "default")
    role = roles.by_name.get(name)
    if role is None:
        raise ToolInputError(f"unknown agent_type '{name[:100]}'")
    place = AgentPlace(
        parent_id=thread.id,
        root_id=thread.session_id,
        depth=1 if parent is None else parent.depth + 1,
        nickname=_nickname(thread, role),
        role=role.name,
    )
    chosen = child_settings(settings, role, given, config)
    if (engine := chosen.engine) is not None:
        await read_in_thread(lambda: _check_installed(engine))
    history = _said(turn) if given.fork_context else ()
    about: dict[str, object] = {}
    if (given.isolation or role.table.isolation) is not None:
        branch = f"agents/{re.sub('[^a-z0-9]+', '-', place.nickname.lower()).strip('-')}-{child_id[-6:]}"
        folder = await _worktree(thread, branch)
        chosen = moved(chosen, folder)
        if chosen.remote is not None:
            chosen = structs.replace(chosen, **await remote_places(thread.services, chosen, chosen))
        place = structs.replace(place, branch=branch)
        about = {"worktree": folder, "branch": branch}
    return NewChild(child_id, chosen, place, preview[:MAX_PREVIEW], history), about


def child_settings(settings: Settings, role: AgentRole, given: SpawnArguments, config: Config) -> Settings:
    """The settings of a child: those of its parent, of the role, and of the call where the role says nothing. A child
    plans nothing, and never may do more than its parent. Raises `ToolInputError`."""
    table, agents = role.table, config.agents
    sandbox = child_sandbox(settings, role, config)
    provider = table.model_provider or given.model_provider or settings.model_provider
    model = table.model or given.model or agents.default_subagent_model
    engine = table.engine or given.engine or settings.engine
    if engine is not None:
        provider, model = _engine_provider(engine, config), table.model or given.model or DEFAULT_MODEL
    try:
        check_provider(config, provider)
    except RpcError as error:
        if engine is not None:
            raise ToolInputError(error.message) from None
        known = ", ".join(sorted(config.providers))
        raise ToolInputError(f"Unknown model provider `{provider[:100]}` for spawn_agent. There are: {known}") from None
    if model is None:
        same = provider == settings.model_provider
        model = settings.model if same else config.model_choice(None, provider).model
        if role.cheap:
            model = _cheaper(model, provider, config)
    instructions = settings.developer_instructions
    if table.developer_instructions is not None:
        before = instructions or config.developer_instructions
        instructions = "\n\n".join(text for text in (before, table.developer_instructions) if text)
    effort = table.model_reasoning_effort or given.reasoning_effort or agents.default_subagent_reasoning_effort
    return structs.replace(
        settings,
        model=model,
        model_provider=provider,
        effort=effort or (settings.effort if engine is None else None),
        sandbox=sandbox,
        profile=settings.profile if sandbox is settings.sandbox else None,
        developer_instructions=instructions,
        config={**(settings.config or {}), **_overrides(role, config, settings.config or {})} or None,
        dynamic_tools=(),
        mode="default",
        mode_instructions=None,
    )


def _cheaper(model: str, provider: str, config: Config) -> str:
    """The cheap model of a built-in provider, if both prices are known and it costs less than this one."""
    known = KNOWN.get(provider)
    if known is None or known.cheap is None or config.providers[provider].base_url != known.table["base_url"]:
        return model  # a server in the place of OpenAI need not have its models
    prices = [known_model(name, config.models).price for name in (known.cheap, model)]
    cheap, present = ((price.input, price.output) if price is not None else None for price in prices)
    return known.cheap if cheap is not None and present is not None and cheap < present else model


def _engine_provider(engine: str, config: Config) -> str:
    """The provider of a child that an agent program answers. Raises `ToolInputError`."""
    if engine not in config.agents.engines:
        allowed = ", ".join(config.agents.engines) or "none"
        problem = f"the engine `{engine[:100]}` may not be started: the user's setting agents.engines has {allowed}"
        raise ToolInputError(problem)
    return f"{ENGINE}{engine}"


def _check_installed(engine: str) -> None:
    """Raise `ToolInputError` when the program is not here. Blocking."""
    from treadle.runners.engine_registry import find_engine  # few threads have one

    found = find_engine(engine)
    if shutil.which(found.program) is None:
        problem = f"the engine `{engine}` is not installed: {found.program} was not found on the PATH"
        raise ToolInputError(f"{problem}. The user can install it with: {found.install}")


def child_sandbox(settings: Settings, role: AgentRole, config: Config) -> Confinement:
    """The sandbox of a child: never wider than what is in force for the parent now."""
    allowed = settings.sandbox if settings.in_force is settings.confinement else settings.in_force
    mode = role.table.sandbox_mode
    found = narrowed(allowed, mode, config.sandbox_policy("workspace-write"))
    if found is None:
        raise ToolInputError(
            f"the agent_type '{role.name}' has sandbox_mode = \"{mode}\", which is more than this thread may do; take "
            "another one"
        )
    return found


def _overrides(role: AgentRole, config: Config, taken: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a child that switch off what its role leaves out; `taken` are those that its parent was given."""
    table = role.table
    changes: dict[str, Any] = {}
    if table.tools is not None:
        for name in sorted(built_in_names() - set(table.tools)):
            changes[join_key(("tools", name))] = False
        changes["features.multi_agent"] = bool(AGENT_TOOL_NAMES & set(table.tools))
    if table.mcp_servers is not None:
        for name, server in config.mcp_servers.items():
            is_wanted, named = name in table.mcp_servers, (("mcp_servers",), ("mcp_servers", name))
            # A role of the user may switch on what the user has switched off for all, not what its parent was refused.
            may_have = role.own and not any(split_key(key)[:2] in named for key in taken)
            if server.problem is None and server.enabled != is_wanted and (may_have or not is_wanted):
                changes[join_key(("mcp_servers", name, "enabled"))] = is_wanted
    if table.skills is not None:
        # None but these, and of these none that is turned off already.
        rules = config.skills.config
        wanted = [name for name in table.skills if rule_for(rules, name=name) is not False]
        off = [rule.path for rule in rules if rule.path is not None and not rule.enabled]
        changes["skills.config"] = [
            {"name": EVERY_SKILL, "enabled": False},
            *({"name": name, "enabled": True} for name in wanted),
            *({"path": path, "enabled": False} for path in off),
        ]
    return changes


# --- a worktree -------------------------------------------------------------------------------------------------------


_SHARED: Final = "--git-common-dir"


class _Place(Struct, frozen=True):
    """Where worktrees are made; see `treadle.execution.worktrees.WorktreePlace`."""

    path: str
    worktrees: str
    base: str | None = "HEAD"


async def _worktree(thread: Thread, branch: str) -> str:
    """The folder of a new branch, where the parent may write too."""
    from treadle.execution.worktrees import WORKTREES, Git, Worktrees  # loaded with the first of them

    settings = thread.settings
    if settings.environment is None:
        raise ToolInputError('isolation = "worktree" needs an environment, which this thread has not')
    try:
        environment = await thread.services.environment(settings.environment)
        git, files = Git(environment, settings.cwd), environment.files
        top, shared = [
            await git.ask("rev-parse", "--path-format=absolute", what) for what in ("--show-toplevel", _SHARED)
        ]
        if top is None or shared is None:
            raise ToolInputError(f'isolation = "worktree" needs a git repository, which {settings.cwd} is not in')
        root = os.path.join(top, WORKTREES)
        policy = await read_in_thread(lambda: _policy(thread))
        place = os.path.join(await files.canonicalize(root) if await files.exists(root) else root, branch)
        # A `.git` that the agent has made may lead to a repository that it must not read.
        real = await files.canonicalize(shared)
        if policy is not None and (policy.access(place) != "write" or policy.access(real) == "none"):
            raise ToolInputError(f'isolation = "worktree" needs the right to write in {root}')
        try:
            if settings.is_local:
                return await Worktrees(_Place(settings.cwd, WORKTREES), environment).folder(branch)
            return await _make_far_worktree(environment, git, root, branch)
        except BaseException:  # an interrupt may come when it is there already
            discard_worktree(thread, branch)
            raise
    except ToolInputError:
        raise
    except (TreadleError, TimeoutError) as error:
        raise ToolInputError(f"there is no worktree: {error}") from None


def _policy(thread: Thread) -> Policy | None:
    """What the thread may do with files where it works; None is everything. Blocking."""
    settings = thread.settings
    if is_unconfined(settings.in_force):
        return None
    if settings.is_local:
        return policy_from_wire(sandbox_for(settings.in_force, settings.cwd, home=thread.services.home))
    from treadle.execution.remote_machine import policy_there  # few threads are elsewhere

    return policy_there(confined_to(settings))


async def _make_far_worktree(environment: Environment, git: Git, root: str, branch: str) -> str:
    """What `Worktrees` does here, on another machine. The name of the branch is new, so nothing is locked."""
    from treadle.execution.worktrees import CHANGE_S

    files = environment.files
    if not await files.exists(root):
        await files.mkdir(root)
        await files.write(os.path.join(root, ".gitignore"), "*\n")
    if await files.canonicalize(root) != root:
        raise ToolInputError(f"{root} leads elsewhere: remove the symbolic link")
    folder = os.path.join(root, branch)
    await git.run("worktree", "add", "--quiet", "-b", branch, folder, "HEAD", timeout=CHANGE_S)
    return os.path.join(folder, await git.run("rev-parse", "--show-prefix")).rstrip("/")


def discard_worktree(thread: Thread, branch: str | None) -> None:
    """Have the worktree of a child that could not begin removed, with its branch; one in which something was done
    stays."""
    if branch is not None:
        thread.services.spawn(_remove_worktree(thread, branch), f"removing the worktree of {branch}")


async def _remove_worktree(thread: Thread, branch: str) -> None:
    from treadle.execution.worktrees import WORKTREES, Git, WorktreeError, Worktrees  # loaded when it was made

    place, remote = _Place(thread.settings.cwd, WORKTREES), thread.settings.remote
    try:
        environment = await thread.services.environment(remote or LOCAL)
        git = Git(environment, place.path)
        if remote is None:
            try:
                await Worktrees(place, environment).remove(branch)
            except WorktreeError as error:
                if error.kind != "missing":
                    raise
        else:
            top = await git.ask("rev-parse", "--show-toplevel")
            await git.ask("worktree", "remove", os.path.join(top or "/", WORKTREES, branch))
        # It is not there when git did not get that far.
        await git.ask("branch", "--delete", branch)
    except (TreadleError, TimeoutError) as error:
        logger.warning("a worktree is left", {"branch": branch, "reason": str(error)})


def moved(settings: Settings, folder: str) -> Settings:
    """The settings for work in another folder, which takes the place of the one before. What a profile takes away in
    the workspace, it takes away in both."""
    roots, sandbox = settings.workspace_roots, settings.sandbox
    confined = settings.confinement
    if isinstance(sandbox, ProfileSandbox) and isinstance(confined, ProfileSandbox):
        kept = [
            ProfileRule(path, rule.access, rule.glob)
            for rule in confined.rules
            if rule.place.startswith(WORKSPACE_ROOTS) and rule.access != "write"
            for path in confined.paths(rule.place, settings.cwd)
        ]
        sandbox = structs.replace(sandbox, rules=(*sandbox.rules, *kept)) if kept else sandbox
    if roots is not None:
        roots = tuple(folder if root == settings.cwd else root for root in roots)
    profile = settings.profile if sandbox is settings.sandbox else None
    return structs.replace(settings, cwd=folder, workspace_roots=roots, sandbox=sandbox, profile=profile)


# --- what was said ----------------------------------------------------------------------------------------------------


class _Said(Struct):
    type: str = ""
    role: str = ""
    phase: str | None = None
    content: Raw = Raw(b"")


_said_of = msgspec.json.Decoder(_Said)


def _said(turn: Turn) -> tuple[Raw, ...]:
    """The items of the history that the user and the model have said to each other."""
    kept: list[Raw] = []
    for item in turn.history.items:
        try:
            message = _said_of.decode(item)
        except msgspec.DecodeError:  # a client has injected it
            continue
        is_said = message.type == "message" and message.role in ("user", "assistant")
        if is_said and message.phase != "commentary" and NOTIFICATION.encode() not in bytes(message.content):
            kept.append(item)
    return tuple(kept)


# --- its name ---------------------------------------------------------------------------------------------------------


def _nickname(thread: Thread, role: AgentRole) -> str:
    taken = {child.nickname for child in thread.state.children.values()}
    names = role.table.nickname_candidates or _NICKNAMES
    free = [name for name in names if name not in taken]
    if free:
        return random.choice(free)
    number = 2
    while (name := f"{names[len(taken) % len(names)]} {number}") in taken:
        number += 1
    return name


_NICKNAMES: Final = (
    *("Ada", "Archimedes", "Aristotle", "Avicenna", "Bacon", "Bohr", "Boole", "Carson", "Chandra", "Copernicus"),
    *("Curie", "Darwin", "Descartes", "Einstein", "Emmy", "Erdos", "Euclid", "Euler", "Faraday", "Fermat", "Feynman"),
    *("Galileo", "Gauss", "Goodall", "Grace", "Halley", "Hegel", "Herschel", "Hopper", "Hume", "Hypatia", "Kant"),
    *("Kepler", "Lamarr", "Leibniz", "Linnaeus", "Locke", "Lovelace", "Maxwell", "McClintock", "Meitner", "Mendel"),
    *("Newton", "Noether", "Ohm", "Pascal", "Pasteur", "Planck", "Plato", "Poincare", "Ptolemy", "Raman", "Ramanujan"),
    *("Rawls", "Rosalind", "Sagan", "Socrates", "Spinoza", "Tesla", "Turing", "Volta", "Weil", "Wittgenstein", "Zeno"),
)
