"""Threads behind their `ThreadHandle`, and the turn: context, model stream, tools, approvals, steering, compaction.

It owns what a thread does. It knows nothing of connections or JSON-RPC: what happens is published to `Subscribers`,
and what has to be asked is asked through them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.internal_names import internal_name


def __getattr__(name: str) -> object:
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.agent.agent_roles import AgentRole, BUILT_IN_ROLES, RoleTable, Roles, find_roles
    from treadle.agent.event import DeltaStream, Event, new_id, now_ms
    from treadle.agent.journal import Journal, MERGE_BEYOND
    from treadle.agent.model_failures import advice, error_info, failure_of, retry_info
    from treadle.agent.services import AgentServices, McpServices
    from treadle.agent.thread.authority import Authority, CHANGED, Grant, confined_to, file_rules, limits_of_parent
    from treadle.agent.thread.authority import rules_of, same_authority, turn_sandbox
    from treadle.agent.thread.client_requests import ClientRequest
    from treadle.agent.thread.mcp_sampling import sampling_message
    from treadle.agent.thread.model_history import ABORTED, History, repaired, with_origin
    from treadle.agent.thread.thread import Thread
    from treadle.agent.thread.thread_children import Children, NewChild
    from treadle.agent.thread.thread_handle import ThreadHandle
    from treadle.agent.thread.thread_mcp import REST_S
    from treadle.agent.thread.thread_queue import MAX_QUEUED
    from treadle.agent.thread.thread_reading import make_cursor, read_cursor, turns_with_items, wire_turn
    from treadle.agent.thread.thread_refusals import cursor_ahead
    from treadle.agent.thread.thread_state import Child, Settings, State, Usage, new_settings, read_state, read_usage
    from treadle.agent.tools.agent_tools import AGENT_TOOLS, SpawnArguments, namespace
    from treadle.agent.tools.approval import Approval, ApprovalQuestion, FAILED, Outcome, REJECTED, ReviewedAction
    from treadle.agent.tools.approval import Risk, ToolUse, decide, is_reviewed, is_yes, read_decision, refusal
    from treadle.agent.tools.auto_review import ACTION_CHARS, ATTEMPTS, Assessment, LATE, MAX_DENIED, MAX_IN_A_ROW
    from treadle.agent.tools.auto_review import NoVerdict, RATIONALE_CHARS, SCHEMA, STEPS_CHARS, USER_CHARS
    from treadle.agent.tools.auto_review import read_assessment, review_messages, transcript
    from treadle.agent.tools.built_in import ApplyPatchArguments, ApplyPatchFreeform, BUILT_IN, CreateGoalArguments
    from treadle.agent.tools.built_in import ExecCommandArguments, GetGoalArguments, MAX_STEPS, PATCH_GRAMMAR
    from treadle.agent.tools.built_in import RequestUserInputArguments, UpdateGoalArguments, UpdatePlanArguments
    from treadle.agent.tools.built_in import ViewImageArguments, WriteStdinArguments, plan_steps
    from treadle.agent.tools.mcp_calls import needs_approval, read_answer
    from treadle.agent.tools.new_child import child_settings, moved
    from treadle.agent.tools.patch_call import MAX_DIFF_CHARS, TurnDiff
    from treadle.agent.tools.tool import Tool, ToolCall
    from treadle.agent.tools.toolbox import NO_ENVIRONMENT, left, offered, specifications, tool_refusal
    from treadle.agent.tools.web_tools import hosted_search, reach
    from treadle.agent.turn.code_review import NO_REPORT, UNFINISHED, report_text
    from treadle.agent.turn.model_context import Instructions, read_instructions
    from treadle.agent.turn.pending_input import MAX_INPUT_CHARS, MAX_SKILL_BYTES, PendingInput, check_input
    from treadle.agent.turn.pending_input import model_items, text_of
    from treadle.agent.turn.proposed_plan import PlanCutter, cut
    from treadle.agent.turn.sampling import ModelCall, Sampling, sample, web_search_item
    from treadle.agent.turn.turn import Turn
    from treadle.agent.turn.turn_start import MAX_IDLE_GOAL_TURNS
