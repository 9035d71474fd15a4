"""Messages, what a model is asked with, and what an endpoint answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from gymcli.types.json_values import JSON, JSONObject

__all__ = [
    "MAX_COUNT",
    "Answer",
    "Call",
    "FinishReason",
    "FunctionCall",
    "Message",
    "Request",
    "Role",
    "ToolCall",
    "Tries",
    "Usage",
    "text_of",
]

Role = Literal["system", "developer", "user", "assistant", "tool"]

FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]
"""Why the endpoint ended one message; what it says beyond these counts as `stop`."""

MAX_COUNT = 2**64 - 1
"""The largest number of tokens that is believed: sums of larger ones may be no double."""


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
    """An object: what else the endpoint said of it, as Gemini its signature of a thought."""

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
    """The Responses items of this message, verbatim, where chat shape cannot say them."""
    logprobs: JSON = None
    extra: JSON = {}
    """An object: what else the endpoint said of it, as OpenRouter its `reasoning_details`."""

    @property
    def text(self) -> str:
        """The text of the content; images and other parts are left out."""
        content = self.content  # mostly it is this already, and verifiers ask very often
        return content if isinstance(content, str) else text_of(content)

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


class Usage(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """Tokens as the endpoint counted them; 0 where it did not say."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """The part of `prompt_tokens` that came from the endpoint's prefix cache."""
    reasoning_tokens: int = 0
    """The part of `completion_tokens` that was reasoning."""

    def __post_init__(self) -> None:
        """Believe nothing where one of the counts cannot be true."""
        if (
            self.prompt_tokens > MAX_COUNT
            or self.completion_tokens > MAX_COUNT
            or self.cached_tokens > MAX_COUNT
            or self.reasoning_tokens > MAX_COUNT
        ):
            self.prompt_tokens = self.completion_tokens = 0
            self.cached_tokens = self.reasoning_tokens = 0

    def add(self, other: Usage) -> None:
        """Add another count to this one."""
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.cached_tokens += other.cached_tokens
        self.reasoning_tokens += other.reasoning_tokens

    def add_all(self, others: Sequence[Usage]) -> None:
        """Add many other counts to this one."""
        self.prompt_tokens += sum([other.prompt_tokens for other in others])
        self.completion_tokens += sum([other.completion_tokens for other in others])
        self.cached_tokens += sum([other.cached_tokens for other in others])
        self.reasoning_tokens += sum([other.reasoning_tokens for other in others])


class Tries(msgspec.Struct, kw_only=True):
    """What came of a request beside its answer, told as it comes: one that is cut off told it."""

    retries: dict[str, int] = {}
    """Tries that failed and were not the last, counted by error class."""
    usage: Usage = msgspec.field(default_factory=Usage)
    """Tokens of answers that were of no use."""

    def count(self, error: Exception) -> None:
        """Count a try that failed and is not the last."""
        name = type(error).__name__
        self.retries[name] = self.retries.get(name, 0) + 1


class Request(msgspec.Struct, kw_only=True):
    """What one model turn is asked with, in no wire format yet."""

    messages: list[Message]
    tools: list[JSONObject] = []
    """Tools in chat shape: `{"type": "function", "function": {...}}`, others verbatim."""
    params: JSONObject = {}
    """Sampling and other parameters under their Chat Completions names."""
    tries: Tries = msgspec.field(default_factory=Tries)
    """Filled by who answers it."""


class Answer(msgspec.Struct, kw_only=True):
    """What an endpoint gave for one request."""

    message: Message
    finish_reason: FinishReason = "stop"
    unknown_finish: str | None = None
    """The endpoint's own word where it is none of the finish reasons."""
    usage: Usage = msgspec.field(default_factory=Usage)
    model: str | None = None
    """The model's name as the endpoint says it."""
    response_id: str = ""
    """What the endpoint calls the answer."""


class Call(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """One request of an attempt to the policy that was answered."""

    usage: Usage = msgspec.field(default_factory=Usage)
    finish_reason: str
    """A `FinishReason`, or the endpoint's own word where it is none of these."""
    response_id: str = ""
    seconds: float = 0.0
    """Until the answer was there, with everything that was tried before."""
    lacks_logprobs: bool = False
    """Log-probabilities were asked for, and the text came without them."""
