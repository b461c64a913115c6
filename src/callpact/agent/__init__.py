"""Agents whose final answer is under contract: instruct, run, read, judge, retry, fall back.

Everything here is imported on first use.
"""

from typing import TYPE_CHECKING

from callpact.lazy import lazy_names

if TYPE_CHECKING:
    from callpact.agent.account import Account, Answer, Paused, TypedResult
    from callpact.agent.agent import Agent
    from callpact.agent.answer.parse import Parsed, parse_answer
    from callpact.agent.answer.shape import Shape, shape_of
    from callpact.agent.answer_events import AnswerEvent
    from callpact.agent.models.model import (
        File,
        Message,
        Model,
        ModelReply,
        ModelRequest,
        ToolOffer,
        ToolUse,
        Usage,
    )
    from callpact.agent.models.open import open_model
    from callpact.agent.prompt.instructions import Skill, Turn
    from callpact.agent.prompt.memory import Memory, Remembered, SqliteMemory
    from callpact.agent.reliability import (
        Backoff,
        CircuitBreaker,
        Rule,
        Scope,
        default_stuck_loop_rule,
        last_n_validation_errors_match,
        strict_output_rules,
    )
    from callpact.agent.run.stream import Finished, Reset, Token

__getattr__ = lazy_names(
    __name__,
    {
        "account": ("Account", "Answer", "Paused", "TypedResult"),
        "agent": ("Agent",),
        "answer.parse": ("Parsed", "parse_answer"),
        "answer.shape": ("Shape", "shape_of"),
        "answer_events": ("AnswerEvent",),
        "models.model": (
            "File",
            "Message",
            "Model",
            "ModelReply",
            "ModelRequest",
            "ToolOffer",
            "ToolUse",
            "Usage",
        ),
        "models.open": ("open_model",),
        "prompt.instructions": ("Skill", "Turn"),
        "prompt.memory": ("Memory", "Remembered", "SqliteMemory"),
        "reliability": (
            "Backoff",
            "CircuitBreaker",
            "Rule",
            "Scope",
            "default_stuck_loop_rule",
            "last_n_validation_errors_match",
            "strict_output_rules",
        ),
        "run.stream": ("Finished", "Reset", "Token"),
    },
)

__all__ = [
    "Account",
    "Agent",
    "Answer",
    "AnswerEvent",
    "Backoff",
    "CircuitBreaker",
    "File",
    "Finished",
    "Memory",
    "Message",
    "Model",
    "ModelReply",
    "ModelRequest",
    "Parsed",
    "Paused",
    "Remembered",
    "Reset",
    "Rule",
    "Scope",
    "Shape",
    "Skill",
    "SqliteMemory",
    "Token",
    "ToolOffer",
    "ToolUse",
    "Turn",
    "TypedResult",
    "Usage",
    "default_stuck_loop_rule",
    "last_n_validation_errors_match",
    "open_model",
    "parse_answer",
    "shape_of",
    "strict_output_rules",
]
