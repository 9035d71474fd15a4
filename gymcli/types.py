"""The data on disk and on the wire: messages, rows, answers, rollouts, failures.

Everything here is a msgspec struct, decoded and encoded directly: these are the types of the hot
path. Fields at their default are left out of a line, and unknown fields are skipped, so that an
older gymcli can read a newer run.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from gymcli.errors import Phase

__all__ = [
    "CODE_HASH",
    "JSON",
    "JSON_ERRORS",
    "LARGEST",
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


if TYPE_CHECKING:
    # A recursive alias would say more, but msgspec decodes none; `object` makes every reader look.
    JSON: TypeAlias = object
    JSONObject: TypeAlias = dict[str, object]
else:
    # What msgspec takes as it comes; for `object` it would check every value.
    JSON = Any
    JSONObject = dict[str, Any]

JSON_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What decoding foreign text raises: no JSON, another shape, no UTF-8, nested too deeply."""


def canonical_json(value: object) -> bytes:
    """Encode with sorted keys and no spaces: equal values give equal bytes."""
    return msgspec.json.encode(value, order="sorted")


def digest(value: object) -> str:
    """Return 16 hex digits of SHA-256 over the canonical JSON of a value."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


Role = Literal["system", "developer", "user", "assistant", "tool"]

FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]
"""Why the endpoint ended one message; any other word of its counts as `stop`."""


class FunctionCall(msgspec.Struct, gc=False):
    """The function that a model wants called."""

    name: str
    arguments: str
    """The JSON text as the model wrote it; it need not be valid."""


class ToolCall(msgspec.Struct, gc=False):
    """One tool call of an assistant message, in OpenAI chat shape."""

    id: str
    function: FunctionCall
    type: str = "function"
    extra: JSON = msgspec.UNSET
    """An object: other members that the endpoint sent, such as Gemini's thought signature."""

    @property
    def name(self) -> str:
        """The tool's name as the model wrote it."""
        return self.function.name

    @property
    def arguments(self) -> str:
        """The argument text as the model wrote it."""
        return self.function.arguments


class Message(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """One message of a conversation, in OpenAI chat shape."""

    role: Role
    content: str | list[JSONObject] | None = None
    """Text, or chat content parts (`text`, `image_url`, `input_audio`, `file`)."""
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] = []
    tool_call_id: str | None = None
    """For role `tool`: the call that this answers."""
    name: str | None = None
    response_items: list[JSONObject] = []
    """The Responses items of this message, verbatim, where chat shape cannot express them."""
    logprobs: JSON = None
    extra: JSON = {}
    """An object: other members that the endpoint sent, such as `reasoning_details`."""

    @property
    def text(self) -> str:
        """The text of the content; images and other parts are left out."""
        return text_of(self.content)

    @property
    def is_reasoning_only(self) -> bool:
        """Whether the model thought and then said and called nothing."""
        return bool(self.reasoning) and not self.tool_calls and not self.text


def text_of(content: str | list[JSONObject] | None) -> str:
    """Join the text parts of a message's content."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(str(part["text"]) for part in content if isinstance(part.get("text"), str))


_MAX_COUNT = 2**64 - 1


class Usage(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """Tokens as the endpoint counted them; 0 where it did not say."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """The part of `prompt_tokens` that came from the endpoint's prefix cache."""
    reasoning_tokens: int = 0
    """The part of `completion_tokens` that was reasoning."""

    def __post_init__(self) -> None:
        # Where one count cannot be true, none is believed: sums of larger ones may be no double.
        if (
            self.prompt_tokens > _MAX_COUNT
            or self.completion_tokens > _MAX_COUNT
            or self.cached_tokens > _MAX_COUNT
            or self.reasoning_tokens > _MAX_COUNT
        ):
            self.prompt_tokens = self.completion_tokens = 0
            self.cached_tokens = self.reasoning_tokens = 0

    def add(self, *others: Usage) -> None:
        """Add other counts to this one."""
        self.prompt_tokens += sum([other.prompt_tokens for other in others])
        self.completion_tokens += sum([other.completion_tokens for other in others])
        self.cached_tokens += sum([other.cached_tokens for other in others])
        self.reasoning_tokens += sum([other.reasoning_tokens for other in others])


class Tries(msgspec.Struct, kw_only=True):
    """What a request took before its answer; also known where the request is cancelled."""

    retries: dict[str, int] = {}
    """Tries that failed, without the last one, counted by error class."""
    usage: Usage = msgspec.field(default_factory=Usage)
    """Tokens of useless answers."""

    def count(self, error: Exception) -> None:
        """Count a try that failed and is not the last."""
        name = type(error).__name__
        self.retries[name] = self.retries.get(name, 0) + 1


class Request(msgspec.Struct, kw_only=True):
    """What a model is asked in one turn, in no wire format yet."""

    messages: list[Message]
    tools: list[JSONObject] = []
    """Tools in chat shape: `{"type": "function", "function": {...}}`, others verbatim."""
    params: JSONObject = {}
    """Sampling and other parameters under their Chat Completions names."""
    tries: Tries = msgspec.field(default_factory=Tries)
    """Filled while the request is answered."""


class Answer(msgspec.Struct, kw_only=True):
    """What an endpoint answered to one request."""

    message: Message
    finish_reason: FinishReason = "stop"
    unknown_finish: str | None = None
    """The endpoint's own word where it is none of the finish reasons."""
    usage: Usage = msgspec.field(default_factory=Usage)
    model: str | None = None
    """As the endpoint names it."""
    response_id: str = ""
    """The endpoint's name for the answer."""


class Call(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """One request of an attempt to the policy that was answered."""

    usage: Usage = msgspec.field(default_factory=Usage)
    finish_reason: str
    """A `FinishReason`, or the endpoint's own word where it is none of these."""
    response_id: str = ""
    seconds: float = 0.0
    """Until the answer was complete, failed tries included."""
    lacks_logprobs: bool = False
    """Log-probabilities were asked for, and the answer has none."""


SCHEMA_VERSION = 1

CODE_HASH = "code-"
"""The beginning of a source hash of code alone, without comments and docstrings."""

LARGEST = 1e100
"""The largest number of a score: sums of the squares of larger ones may overflow."""

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
    """Answers that were on record already; they are in no other count."""
    num_failed: int = 0
    seconds: float = 0.0
    """Sum over the calls, some of which may have run at the same time."""
    usage: Usage = msgspec.field(default_factory=Usage)
    cost: float | None = None
    """In the currency of gym.toml's prices; None where it has none."""
    retries: dict[str, int] = {}
    """Tries that failed, counted by error class."""

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
        self.retries = dict(Counter(self.retries) + Counter(other.retries))


class AttemptKey(msgspec.Struct, frozen=True, order=True):
    """What names an attempt within a run."""

    env: str
    task_id: str
    attempt: int


class TaskRow(msgspec.Struct, kw_only=True):
    """One line of a tasks file in any shape, ready to be run."""

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
    """The rest of the row, for tools and the verifier."""
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
    """Begins with `code-` where it is of code without prose; others are of whole files."""


def is_other_source(one: str, other: str) -> bool:
    """Return whether two source hashes are of different code; False where that is unknown."""
    kinds = {source_hash.startswith(CODE_HASH) for source_hash in (one, other)}
    return bool(one and other) and len(kinds) == 1 and one != other


class RecordHead(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The first fields of a line of rollouts.jsonl, generations.jsonl or failures.jsonl.

    The parent of both records, and of structs that decode a few fields of a line and leave the
    conversation undecoded. A struct writes the fields of its parent first.
    """

    schema_version: int = 0
    """0 on a rollout of another program."""
    task_id: str = ""
    task_hash: str = ""
    attempt: int = -1
    """Counted from 0; the default is another number, so that 0 is written too."""
    env: str = ""
    env_version: str = ""
    """Empty on rollouts of other programs."""
    env_options: JSONObject = {}
    """The environment's options that are not at their default."""
    seed: int = 0
    """Seeds `Environment.rng`, and requests where the run has a seed."""

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
        cleared = Rollout()
        names = ("reward", "components", "metrics", "answer", "details", "verifier")
        return msgspec.structs.replace(self, **{name: getattr(cleared, name) for name in names})

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
    """The fields of a rollout or a failure that are counted, without the conversation.

    Metrics, budgets and the index of a run read lines as this or as a stricter child. What most
    lines lack is None here: an empty dict for each would take a twelfth of the decoding.
    """

    stop_reason: str | None = None
    """Any text: a later release may have other reasons."""
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
