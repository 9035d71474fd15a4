"""Task rows, scores, and the lines of a run: rollouts and failures."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from gymcli.errors import Phase
from gymcli.types.conversation import Call, Message, ToolCall, Usage
from gymcli.types.json_values import JSON, JSONObject

__all__ = [
    "CODE_HASH",
    "LARGEST",
    "SCHEMA_VERSION",
    "AttemptKey",
    "ErrorRecord",
    "Failure",
    "RecordHead",
    "RecordNumbers",
    "RoleUse",
    "Rollout",
    "Score",
    "StopReason",
    "TaskRow",
    "Timing",
    "Verifier",
    "is_other_source",
]

SCHEMA_VERSION = 1

CODE_HASH = "code-"
"""How a source hash begins that is made of code alone, without comments and docstrings."""

LARGEST = 1e100
"""The largest number of a score: beyond it no double holds the squares of very many, added up."""

StopReason = Literal[
    "done",
    "env_done",
    "max_turns",
    "length",
    "context_overflow",
    "content_filter",
    "refusal",
    "no_answer",
    "episode_tokens",
    "episode_time",
    "episode_cost",
]
"""Why an episode ended. Every one of them is scored."""


class Timing(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """Where the time of one attempt went, in seconds."""

    started_at: float = 0.0
    """Seconds since 1970, UTC."""
    model_seconds: float = 0.0
    tool_seconds: float = 0.0
    verify_seconds: float = 0.0
    total_seconds: float = 0.0


class RoleUse(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What one role took in one attempt: its calls while it was played and while it was scored."""

    model: str = ""
    num_calls: int = 0
    num_cached: int = 0
    """Answers that were on record already; no other number counts them."""
    num_failed: int = 0
    seconds: float = 0.0
    """Sum over the calls, some of which may have run at the same time."""
    usage: Usage = msgspec.field(default_factory=Usage)
    cost: float | None = None
    """In the currency of gym.toml's prices; None where they do not say."""
    retries: dict[str, int] = {}
    """What was tried again, also in vain, counted by error class."""

    def add(self, other: RoleUse) -> None:
        """Add the use of another attempt, or of a later scoring, to this one."""
        known = [use.cost for use in (self, other) if use.num_calls or use.cost is not None]
        self.cost = None if not known or None in known else math.fsum(c for c in known if c)
        self.model = self.model or other.model
        self.num_calls += other.num_calls
        self.num_cached += other.num_cached
        self.num_failed += other.num_failed
        self.seconds += other.seconds
        self.usage.add(other.usage)
        if other.retries:
            names = {**self.retries, **other.retries}
            counts = (self.retries, other.retries)
            self.retries = {name: sum(count.get(name, 0) for count in counts) for name in names}


class AttemptKey(msgspec.Struct, frozen=True, order=True):
    """What names an attempt within a run."""

    env: str
    task_id: str
    attempt: int


class TaskRow(msgspec.Struct, kw_only=True):
    """One line of a tasks file, whatever its shape was, ready to be run."""

    id: str
    env: str
    hash: str
    """16 hex digits over the row's canonical content."""
    messages: list[Message]
    tools: list[JSONObject] | None = None
    """The tools that the row declares; None where the environment's own are shown."""
    params: JSONObject = {}
    """Request parameters of the row, under their Chat Completions names."""
    fields: JSONObject = {}
    """Everything else of the row: what tools and verifier need."""
    max_turns: int | None = None
    place: str = ""
    """`file:line`, for messages."""
    first_attempt: int = 0
    """Identical rows are one task; each copy counts its attempts on from here."""


class Score(msgspec.Struct, omit_defaults=True):
    """What a verifier says of one rollout."""

    reward: float
    components: dict[str, float] = {}
    """Named rewards, for training on several objectives."""
    metrics: dict[str, float] = {}
    """Any other numbers worth a mean."""
    answer: str | None = None
    """The answer found in the text; majority voting counts these."""
    details: JSONObject = {}
    """Explanations, never aggregated, but for the string `reason`."""


class Verifier(msgspec.Struct, omit_defaults=True, gc=False):
    """Which verifier gave a score."""

    version: str = ""
    source_hash: str = ""
    """Of its code without prose, begins with `code-`; other hashes are of whole files."""


def is_other_source(one: str, other: str) -> bool:
    """Return whether two source hashes are of different code; False where they cannot say it."""
    kinds = {source_hash.startswith(CODE_HASH) for source_hash in (one, other)}
    return bool(one and other) and len(kinds) == 1 and one != other


class RecordHead(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a line of rollouts.jsonl, generations.jsonl or failures.jsonl begins with.

    The parent of both records, and of whatever reads a few fields of their lines: decoding a line
    as a small struct leaves the conversation undecoded. A struct that inherits writes the fields
    of its parent first, so a parent of a record is always a beginning of its line.
    """

    schema_version: int = 0
    """0 on a rollout of another program."""
    task_id: str = ""
    task_hash: str = ""
    attempt: int = -1
    """Counted from 0; a record of no attempt has -1, so that the first one is written too."""
    env: str = ""
    env_version: str = ""
    """Empty on rollouts of other programs."""
    env_options: JSONObject = {}
    """The environment's options that are not at their default."""
    seed: int = 0
    """Seeds `Environment.rng`, and the requests where the run was given a seed."""

    @property
    def key(self) -> AttemptKey:
        """The name of this attempt within its run."""
        return AttemptKey(self.env, self.task_id, self.attempt)


class Rollout(RecordHead, kw_only=True):
    """One line of rollouts.jsonl: the record of one scored attempt, sufficient to rescore it.

    The order of the fields is the order on the line: identity, conversation, circumstances,
    score. Without a score the same struct is a line of generations.jsonl.
    """

    group_size: int = 0
    """Attempts of the task that are scored together; 0 where each is scored by itself."""
    task: JSONObject = {}
    messages: list[Message] = []
    tools: list[JSONObject] = []
    num_prompt_messages: int = 0
    model: str = ""
    sampling: JSONObject = {}
    response_model: str | None = None
    stop_reason: StopReason | None = None
    """Why the episode ended; None while it goes on."""
    final_state: JSON = None
    step_rewards: list[float | None] = []
    tool_errors: dict[str, int] = {}
    """Tool calls that could not be carried out, counted by what was wrong."""
    usage: Usage = msgspec.field(default_factory=Usage)
    calls: list[Call] = []
    """The requests to the policy that were answered, in their order."""
    cost: float | None = None
    """Of the policy, in the currency of gym.toml's prices; None where it is not known."""
    role_usage: dict[str, RoleUse] = {}
    """Calls and tokens of the models besides the policy, by role."""
    redacted: bool = False
    """Whether the conversation held a key in use, which reads `[redacted]` here."""
    timing: Timing = msgspec.field(default_factory=Timing)
    retries: dict[str, int] = {}
    reward: float | None = None
    components: dict[str, float] = {}
    metrics: dict[str, float] = {}
    answer: str | None = None
    details: JSONObject = {}
    verifier: Verifier = msgspec.field(default_factory=Verifier)

    @property
    def responses(self) -> list[Message]:
        """The messages after the prompt."""
        return self.messages[self.num_prompt_messages :]

    @property
    def output_text(self) -> str:
        """The text of every assistant message after the prompt, joined."""
        return "".join([m.text for m in self.responses if m.role == "assistant"])

    @property
    def last_text(self) -> str:
        """The text of the last assistant message after the prompt, or an empty string."""
        for message in reversed(self.responses):
            if message.role == "assistant":
                return message.text
        return ""

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Every tool call after the prompt, in order."""
        return [call for m in self.responses if m.role == "assistant" for call in m.tool_calls]

    def unscored(self) -> Rollout:
        """Return a copy of this record without its score."""
        return msgspec.structs.replace(
            self,
            reward=None,
            components={},
            metrics={},
            answer=None,
            details={},
            verifier=Verifier(),
        )

    def scored(self, score: Score, verifier: Verifier, seconds: float) -> Rollout:
        """Return a copy of this record with a score, without any earlier one."""
        timing = msgspec.structs.replace(self.timing, verify_seconds=seconds)
        return msgspec.structs.replace(
            self,
            reward=score.reward,
            components=score.components,
            metrics=score.metrics,
            answer=score.answer,
            details=score.details,
            verifier=verifier,
            timing=timing,
        )


class ErrorRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Why an attempt could not be scored."""

    error_class: str = msgspec.field(name="class")
    phase: Phase
    message: str = ""
    status: int | None = None
    frames: list[str] = []
    """Where an author's code failed: `FILE:LINE in FUNCTION`, innermost last."""


class Failure(RecordHead, kw_only=True):
    """One line of failures.jsonl: an attempt that could not be scored, and why."""

    error: ErrorRecord
    messages: list[Message] = []
    """The conversation as far as it got."""
    redacted: bool = False
    """As on a rollout."""
    model: str = ""
    usage: Usage = msgspec.field(default_factory=Usage)
    calls: list[Call] = []
    cost: float | None = None
    """Of the policy, as on a rollout."""
    role_usage: dict[str, RoleUse] = {}
    timing: Timing = msgspec.field(default_factory=Timing)
    retries: dict[str, int] = {}


class RecordNumbers(RecordHead, kw_only=True):
    """The fields of a line of either kind that are counted, without the conversation.

    Metrics, budgets and the index of a run read lines as this or as a struct that inherits from
    it and is stricter. What most lines lack is None here: an empty dict for each would take a
    twelfth of the decoding. The names and types are those of `Rollout` and `Failure`.
    """

    stop_reason: str | None = None
    """Any text: a later release may have reasons that this one does not know."""
    tool_errors: dict[str, int] | None = None
    usage: Usage = msgspec.field(default_factory=Usage)
    cost: float | None = None
    role_usage: dict[str, RoleUse] | None = None
    timing: Timing = msgspec.field(default_factory=Timing)
    retries: dict[str, int] | None = None
    reward: float | None = None
    components: dict[str, float] | None = None
    metrics: dict[str, float] | None = None
    answer: str | None = None
    error: ErrorRecord | None = None
    """Only on a line of failures.jsonl."""
