"""The data on disk and on the wire: messages, rows, answers, rollouts, failures.

Everything here is a msgspec struct, decoded and encoded without a step between: these are the
types of the hot path. Fields at their default are left out of a line; unknown fields are read
over, so that a newer run can be read by an older gymcli.
"""

from gymcli.types.conversation import (
    MAX_COUNT,
    Answer,
    Call,
    FinishReason,
    FunctionCall,
    Message,
    Request,
    Role,
    ToolCall,
    Tries,
    Usage,
    text_of,
)
from gymcli.types.json_values import JSON, JSON_ERRORS, JSONObject, canonical_json, digest
from gymcli.types.records import (
    CODE_HASH,
    LARGEST,
    SCHEMA_VERSION,
    AttemptKey,
    ErrorRecord,
    Failure,
    RecordHead,
    RecordNumbers,
    RoleUse,
    Rollout,
    Score,
    StopReason,
    TaskRow,
    Timing,
    Verifier,
    is_other_source,
)

__all__ = [
    "CODE_HASH",
    "JSON",
    "JSON_ERRORS",
    "LARGEST",
    "MAX_COUNT",
    "SCHEMA_VERSION",
    "Answer",
    "AttemptKey",
    "Call",
    "ErrorRecord",
    "Failure",
    "FinishReason",
    "FunctionCall",
    "JSONObject",
    "Message",
    "RecordHead",
    "RecordNumbers",
    "Request",
    "Role",
    "RoleUse",
    "Rollout",
    "Score",
    "StopReason",
    "TaskRow",
    "Timing",
    "ToolCall",
    "Tries",
    "Usage",
    "Verifier",
    "canonical_json",
    "digest",
    "is_other_source",
    "text_of",
]
