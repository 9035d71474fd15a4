"""The data on disk and on the wire: messages, rows, answers, rollouts, failures.

All types here are msgspec structs, encoded and decoded without conversion since they are on the hot
path. Fields at their default are left out of a line and unknown fields are skipped, so that an
older gymcli can read a newer run.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from gymcli.errors import Phase

if TYPE_CHECKING:
    # msgspec cannot decode a recursive alias; `object` makes every reader check the type.
    JSON: TypeAlias = object
    JSONObject: TypeAlias = dict[str, object]
else:
    # msgspec accepts `Any` unchecked; for `object` it would check every value.
    JSON = Any
    JSONObject = dict[str, Any]

JSON_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Errors of decoding foreign text: not JSON, the wrong shape, not UTF-8, nested too deeply."""


def json_or_text(text: str) -> JSON:
    """Return the value of a JSON text; any other text as it is."""
    try:
        return msgspec.json.decode(text)
    except JSON_ERRORS:
        return text


def canonical_json(value: object) -> bytes:
    """Encode with sorted keys and no spaces, so that equal values have equal bytes."""
    return msgspec.json.encode(value, order="sorted")


def digest(value: object) -> str:
    """Return 16 hex digits of SHA-256 over the canonical JSON of a value."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


Role = Literal["system", "developer", "user", "assistant", "tool"]

FinishReason = Literal[
    "stop", "tool_calls", "length", "content_filter", "refusal", "malformed_call", "no_answer"
]
"""Why a message ended; any other value that an endpoint sends counts as `stop`.

`malformed_call`: the model wrote a tool call that the endpoint cannot read. `no_answer`: the answer
was empty each time that the model was asked.
"""


# `gc=False`: no cycle leads through these structs, so the garbage collector need not visit the many
# of them that a run holds.
class FunctionCall(msgspec.Struct, gc=False):
    """The function that a model calls."""

    name: str
    arguments: str
    """The JSON text as the model wrote it; it may be invalid."""


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


MALFORMED_CALL = "malformed_call"
"""The member of a message's `extra` that marks a tool call that the endpoint could not read."""


class Message(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """One message of a conversation, in OpenAI chat shape."""

    role: Role
    content: str | list[JSONObject] | None = None
    """Text, or chat content parts (`text`, `image_url`, `input_audio`, `file`)."""
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] = []
    tool_call_id: str | None = None
    """For role `tool`: the id of the call that this message answers."""
    name: str | None = None
    response_items: list[JSONObject] = []
    """The Responses items of this message, verbatim, if chat shape cannot express them."""
    logprobs: JSON = None
    extra: JSON = {}
    """An object: other members that the endpoint sent, such as `reasoning_details`."""

    @property
    def text(self) -> str:
        """The text of the content; images and other parts are left out."""
        return text_of(self.content)

    @property
    def is_reasoning_only(self) -> bool:
        """Whether the message holds reasoning, but no text and no tool calls."""
        return bool(self.reasoning) and not self.tool_calls and not self.text

    @property
    def is_malformed_call(self) -> bool:
        """Whether the text is a tool call that the endpoint could not read."""
        return isinstance(self.extra, dict) and self.extra.get(MALFORMED_CALL) is True


def text_of(content: str | list[JSONObject] | None) -> str:
    """Join the text parts of a message's content."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(str(part["text"]) for part in content if isinstance(part.get("text"), str))


_MAX_COUNT = 2**64 - 1


class Usage(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """Tokens as the endpoint counted them; 0 if it sent no count."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """The part of `prompt_tokens` that came from the endpoint's prefix cache."""
    reasoning_tokens: int = 0
    """The part of `completion_tokens` that was reasoning."""

    def __post_init__(self) -> None:
        # One impossible count discredits all, and sums of such counts may overflow a double.
        if (
            self.prompt_tokens > _MAX_COUNT
            or self.completion_tokens > _MAX_COUNT
            or self.cached_tokens > _MAX_COUNT
            or self.reasoning_tokens > _MAX_COUNT
        ):
            self.prompt_tokens = self.completion_tokens = 0
            self.cached_tokens = self.reasoning_tokens = 0

    def add(self, *usages: Usage) -> None:
        """Add other counts to these."""
        for usage in usages:
            self.prompt_tokens += usage.prompt_tokens
            self.completion_tokens += usage.completion_tokens
            self.cached_tokens += usage.cached_tokens
            self.reasoning_tokens += usage.reasoning_tokens


class Tries(msgspec.Struct, kw_only=True):
    """The failed tries of a request and their tokens; filled even if the request is cancelled."""

    retries: dict[str, int] = {}
    """Failed tries except the last one, counted by error class."""
    usage: Usage = msgspec.field(default_factory=Usage)
    """Tokens of answers that could not be used."""

    def count(self, error: Exception) -> None:
        """Count a try that failed and is not the last."""
        name = type(error).__name__
        self.retries[name] = self.retries.get(name, 0) + 1


TokenSource = Literal["vllm", "token_id", "llamacpp", "nemo_gym", "model"]
"""Where token ids come from.

`vllm`: `return_token_ids`; `token_id`: log-probabilities whose tokens are `token_id:<n>`;
`llamacpp`: log-probabilities with an `id`; `nemo_gym`: NeMo Gym's three fields on messages and
output items; `model`: a policy in the same process.
"""

LogprobMode = Literal["raw", "processed", "unknown"]
"""Log-probabilities before (`raw`) or after (`processed`) temperature and the other parameters."""


class Tokens(msgspec.Struct, kw_only=True, gc=False):
    """The token ids of one answer, as the engine that sampled them reported them."""

    prompt: list[int]
    """The whole prompt of the request, rendered by the chat template."""
    sampled: list[int]
    """The ids of the answer, with the one that ended it if the engine reports it."""
    logprobs: list[float]
    """The natural logarithm of the probability with which each of `sampled` was drawn."""
    source: TokenSource
    logprob_mode: LogprobMode = "unknown"
    weight_version: str = ""
    """The version of the weights, if the endpoint reports one."""
    problem: str = ""
    """Why the ids cannot be read or used; empty if nothing is wrong."""
    off_policy: str = ""
    """Why `logprobs` are not of the distribution that was sampled from, if the request says it."""


class SampledMessage(Message, kw_only=True, gc=False):
    """An answer of a policy in the same process, with its token ids.

    The loop takes the ids off and records a plain `Message`.
    """

    tokens: Tokens
    finish_reason: FinishReason = "stop"


class Request(msgspec.Struct, kw_only=True):
    """The request to a model in one turn, independent of any wire format."""

    messages: list[Message]
    tools: list[JSONObject] = []
    """Tools in chat shape: `{"type": "function", "function": {...}}`, others verbatim."""
    params: JSONObject = {}
    """Sampling and other parameters under their Chat Completions names."""
    last_tokens: Tokens | None = None
    """The ids of the last assistant message, for an endpoint that wants them back."""
    tries: Tries = msgspec.field(default_factory=Tries)
    """Filled while the request is answered."""


class Answer(msgspec.Struct, kw_only=True):
    """An endpoint's answer to one request."""

    message: Message
    finish_reason: FinishReason = "stop"
    unknown_finish: str | None = None
    """The endpoint's own value, if it is not a `FinishReason`."""
    usage: Usage = msgspec.field(default_factory=Usage)
    model: str | None = None
    """The model's name as the endpoint reports it."""
    response_id: str = ""
    """The endpoint's id for the answer."""
    tokens: Tokens | None = None
    """Only if they were requested."""


class Call(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """One answered request of an attempt to the policy."""

    usage: Usage = msgspec.field(default_factory=Usage)
    finish_reason: str
    """A `FinishReason`, or the endpoint's own value if it is not one of these."""
    response_id: str = ""
    seconds: float = 0.0
    """Time until the answer was complete, including failed tries."""
    lacks_logprobs: bool = False
    """Log-probabilities were requested and the answer has none."""


SCHEMA_VERSION = 1

LARGEST = 1e100
"""The largest number in a score: sums of squares of larger numbers may overflow."""

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
"""Why an episode ended. Every episode is scored, for whichever reason it ended."""

ToolFault = Literal[
    "unknown_tool",
    "not_json",
    "not_an_object",
    "wrong_arguments",
    "raised",
    "timeout",
    "malformed",  # the endpoint could not read it
]
"""Why a tool call was not carried out."""


class Timing(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """The time that one attempt spent in each part, in seconds."""

    started_at: float = 0.0
    """Seconds since 1970, UTC."""
    model_seconds: float = 0.0
    tool_seconds: float = 0.0
    verify_seconds: float = 0.0
    total_seconds: float = 0.0


class RoleUse(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The calls of one role in one attempt, both while playing and while scoring."""

    model: str = ""
    num_calls: int = 0
    num_cached: int = 0
    """Answers that were already recorded; no other count includes them."""
    num_failed: int = 0
    seconds: float = 0.0
    """Sum over the calls, some of which may have run concurrently."""
    usage: Usage = msgspec.field(default_factory=Usage)
    cost: float | None = None
    """In the currency of gym.toml's prices; None without prices."""
    retries: dict[str, int] = {}
    """Failed tries, counted by error class."""

    def add(self, other: RoleUse) -> None:
        """Add the use of another attempt, or of a later scoring, to this one."""
        # Calls without a price make the sum unknown; a part without calls does not.
        costs = [use.cost for use in (self, other) if use.num_calls or use.cost is not None]
        self.cost = None if not costs or None in costs else math.fsum(c for c in costs if c)
        self.model = self.model or other.model
        self.num_calls += other.num_calls
        self.num_cached += other.num_cached
        self.num_failed += other.num_failed
        self.seconds += other.seconds
        self.usage.add(other.usage)
        self.retries = dict(Counter(self.retries) + Counter(other.retries))


class AttemptKey(msgspec.Struct, frozen=True, order=True):
    """The key of an attempt within a run."""

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
    """The tools that the row declares; None if the model sees the environment's tools."""
    params: JSONObject = {}
    """Request parameters of the row, under their Chat Completions names."""
    fields: JSONObject = {}
    """The rest of the row, for tools and the verifier."""
    max_turns: int | None = None
    place: str = ""
    """`file:line`, for messages."""
    first_attempt: int = 0
    """Identical rows are one task; this copy numbers its attempts from here."""


class Score(msgspec.Struct, omit_defaults=True):
    """A verifier's score of one rollout."""

    reward: float
    components: dict[str, float] = {}
    """Named rewards, for training on several objectives."""
    metrics: dict[str, float] = {}
    """Other numbers; reports show their means."""
    answer: str | None = None
    """The answer found in the text; majority voting counts these."""
    details: JSONObject = {}
    """Explanations; only the string `reason` is ever aggregated."""


class Verifier(msgspec.Struct, omit_defaults=True, gc=False):
    """The verifier that produced a score."""

    version: str = ""
    source_hash: str = ""
    """Begins with `code-`, since it covers only code, without comments and docstrings."""


def is_other_source(first: str, second: str) -> bool:
    """Return whether two source hashes cover different code; False if that is unknown."""
    return bool(first and second) and first != second


class RecordHead(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The first fields of a line of rollouts.jsonl, generations.jsonl or failures.jsonl.

    The parent of both records and of structs that decode only a few fields of a line, without the
    conversation. A struct writes its parent's fields first.
    """

    schema_version: int = 0
    """0 on a rollout from another program."""
    task_id: str = ""
    task_hash: str = ""
    attempt: int = -1
    """Counted from 0; the default is -1 so that 0 is written too."""
    env: str = ""
    env_version: str = ""
    """Empty on rollouts from other programs."""
    env_options: JSONObject = {}
    """The environment's options that differ from their default."""
    seed: int = 0
    """Seeds `Environment.rng`; also seeds requests if the run has a seed."""

    @property
    def key(self) -> AttemptKey:
        """The key of this attempt within its run."""
        return AttemptKey(self.env, self.task_id, self.attempt)


class Rollout(RecordHead, kw_only=True):
    """One line of rollouts.jsonl: the record of one scored attempt, sufficient to rescore it.

    The order of the fields is the order on the line: identity, conversation, circumstances,
    score. Without a score the same struct is a line of generations.jsonl.
    """

    group_size: int = 0
    """Attempts of the task that are scored together; 0 if each is scored separately."""
    play: str = ""
    """Names this playing of the attempt in tokens.jsonl; empty if no token ids were recorded."""
    task: JSONObject = {}
    messages: list[Message] = []
    tools: list[JSONObject] = []
    num_prompt_messages: int = 0
    model: str = ""
    sampling: JSONObject = {}
    response_model: str | None = None
    stop_reason: StopReason | None = None
    """Why the episode ended; None while it is running."""
    final_state: JSON = None
    step_rewards: list[float | None] = []
    tool_errors: dict[str, int] = {}
    """Tool calls that could not be executed, counted by kind of error."""
    usage: Usage = msgspec.field(default_factory=Usage)
    calls: list[Call] = []
    """The answered requests to the policy, in order."""
    cost: float | None = None
    """The policy's cost in the currency of gym.toml's prices; None if unknown."""
    role_usage: dict[str, RoleUse] = {}
    """Calls and tokens of the models other than the policy, by role."""
    redacted: bool = False
    """Whether the conversation held a key in use, which is replaced by `[redacted]`."""
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
        empty = Rollout()  # has the default of each field
        names = ("reward", "components", "metrics", "answer", "details", "verifier")
        return msgspec.structs.replace(self, **{name: getattr(empty, name) for name in names})

    def scored(self, score: Score, verifier: Verifier, seconds: float) -> Rollout:
        """Return a copy of this record with this score in place of any earlier one."""
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
    """Where the environment's code failed: `FILE:LINE in FUNCTION`, innermost last."""


class Failure(RecordHead, kw_only=True):
    """One line of failures.jsonl: an attempt that could not be scored, and why."""

    error: ErrorRecord
    messages: list[Message] = []
    """The conversation up to the failure."""
    redacted: bool = False
    """As in a rollout."""
    model: str = ""
    usage: Usage = msgspec.field(default_factory=Usage)
    calls: list[Call] = []
    cost: float | None = None
    """The policy's cost, as in a rollout."""
    role_usage: dict[str, RoleUse] = {}
    timing: Timing = msgspec.field(default_factory=Timing)
    retries: dict[str, int] = {}


class RecordNumbers(RecordHead, kw_only=True):
    """The fields of a rollout or a failure that are counted, without the conversation.

    Metrics, budgets and the index of a run decode lines as this class or a stricter child. Fields
    that most lines lack default to None: creating empty dicts would take a twelfth of the decoding.
    """

    stop_reason: str | None = None
    """Any text, since a later release may have other reasons."""
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
