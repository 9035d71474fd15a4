"""What an endpoint's refusal means, read from its status and its words."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gymcli.secrets import Scrubber
from gymcli.types import JSON

__all__ = [
    "CONTEXT_OVERFLOWS",
    "HOPELESS",
    "MODERATED",
    "PERMANENT",
    "TOO_LONG_ANSWERS",
    "error_text",
    "error_words",
    "is_context_overflow",
    "is_hopeless",
    "is_moderated",
    "is_permanent",
    "one_line",
    "redact",
]

MAX_TEXT = 300
"""Characters of a provider's words that go into a message."""

CONTEXT_OVERFLOWS = (
    # OpenAI, in the `code` of both dialects; Azure and many gateways repeat it
    r"context_length_exceeded",
    # OpenAI's chat completions, DeepSeek, OpenRouter, vLLM:
    # "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens"
    r"maximum context length (is|of)\b",
    # OpenAI's Responses: "Your input exceeds the context window of this model."
    r"exceeds? the context window",
    # vLLM: "The prompt (total length 25938) is too long to fit into the model", and
    # "The decoder prompt (length 5000) is longer than the maximum model length of 4096."
    r"prompt \(.{0,40}length \d+\) is (too long|longer than the maximum)",
    # vLLM: "Input length (265330) exceeds model's maximum context length (262144)."
    r"exceeds (the )?model's maximum context length",
    # vLLM: "You passed 31745 input tokens and requested 1024 output tokens. However, the model's
    # context length is only 32768 tokens, resulting in a maximum input length of 31744"
    r"model's context length is only \d+ tokens",
    # vLLM: "max_tokens must be at least 1, got -186.": the prompt left nothing for the answer
    r"max_(completion_)?tokens must be at least 1, got -\d+",
    # SGLang: "The input (61709 tokens) is longer than the model's context length (40960 tokens)."
    r"longer than the model's context length",
    # SGLang: "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)."
    r"input length \(\d+ tokens\) exceeds the maximum allowed length",
    # llama.cpp, in the `type`
    r"exceed_context_size_error",
    # llama.cpp: "request (4390 tokens) exceeds the available context size (4096 tokens)"
    r"exceeds the available context size",
    # llama.cpp and LM Studio, with status 500: "Context size has been exceeded."
    r"context size has been exceeded",
    # llama-cpp-python: "Requested tokens (2285) exceed context window of 2048"
    r"requested tokens \(\d+\) exceed context window",
    # Anthropic: "prompt is too long: 210000 tokens > 200000 maximum"
    r"prompt is too long",
    # Anthropic: "input length and `max_tokens` exceed context limit: 189136 + 20000 > 204648"
    r"exceed context limit",
    # Amazon Bedrock: "Input is too long for requested model."
    r"input is too long for requested model",
    # Google: "The input token count (9000) exceeds the maximum number of tokens allowed (8192)."
    r"input token count.{0,20} exceeds the maximum number of tokens",
    # xAI: "This model's maximum prompt length is 131072 but the request contains 537812 tokens"
    r"maximum prompt length is \d+",
    # Text Generation Inference: "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: ..."
    r"`inputs` tokens \+ `max_new_tokens` must be <=",
)

PERMANENT = (
    # llama.cpp, with status 500: "image input is not supported - hint: ... provide the mmproj"
    r"(image|audio|video) input is not supported",
    # llama.cpp, with status 500: "tools param requires --jinja flag"
    r"requires --jinja",
    # llama.cpp, with status 501 or 500: "This server does not support chat completions ..."
    r"this server does not support",
    # OpenAI, with status 429, in the `code`: the account has no money left
    r"insufficient_quota",
    # OpenAI, with status 429: "Request too large for gpt-4o ... on tokens per min (TPM)"
    r"request too large for",
)

MODERATED = (
    # OpenRouter, with status 403: "... requires moderation and your input was flagged"
    r"input was flagged",
)

HOPELESS = (
    # OpenAI, in the `code`: the account has no money left
    r"insufficient_quota",
    # OpenAI, in the `code`
    r"model_not_found",
    # vLLM and SGLang: "The model `x` does not exist."
    r"the model .{1,200} does not exist",
    # Ollama: "model 'x' not found, try pulling it first"
    r"model .{1,200} not found",
    # OpenRouter, with status 400: "x is not a valid model ID"
    r"is not a valid model id",
)

TOO_LONG_ANSWERS = (
    # vLLM: "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum
    # context length is 8192 tokens and your request has 20 input tokens (9000 > 8192 - 20)."
    r"tokens' is too large: (?P<asked>\d{1,12})\b.{0,40}context length is (?P<window>\d{1,12})",
    # vLLM: "You passed 20 input tokens and requested 9000 output tokens. However, the model's
    # context length is only 8192 tokens"
    r"requested (?P<asked>\d{1,12}) output tokens\b.{0,40}length is only (?P<window>\d{1,12})",
    # OpenAI and vLLM: "This model's maximum context length is 8192 tokens. However, you requested
    # 9020 tokens (20 in the messages, 9000 in the completion)."
    r"context length is (?P<window>\d{1,12}) tokens.{0,120} (?P<asked>\d{1,12}) in the completion",
)
"""How refusals of too many tokens name those asked for the answer, and the model's window."""

_OVERFLOW = re.compile("|".join(CONTEXT_OVERFLOWS), re.IGNORECASE)
_PERMANENT = re.compile("|".join(PERMANENT), re.IGNORECASE)
_MODERATED = re.compile("|".join(MODERATED), re.IGNORECASE)
_HOPELESS = re.compile("|".join(HOPELESS), re.IGNORECASE)
_TOO_LONG_ANSWERS = tuple(re.compile(pattern, re.IGNORECASE) for pattern in TOO_LONG_ANSWERS)

# Credentials, missing pages and rate limits are never about the length of a conversation, though
# a rate limit may speak of tokens.
_NO_OVERFLOW_STATUSES = frozenset({401, 403, 404, 408, 409, 429})


def is_context_overflow(status: int, text: str) -> bool:
    """Say whether the conversation no longer fits the model.

    It is not the conversation's fault where the answer alone was asked to fill the window.
    """
    if status in _NO_OVERFLOW_STATUSES or _asks_for_window(text):
        return False
    return _OVERFLOW.search(text) is not None


def is_permanent(text: str) -> bool:
    """Say whether a refusal with a passing status will hold for ever."""
    return _PERMANENT.search(text) is not None or _asks_for_window(text)


def is_moderated(text: str) -> bool:
    """Say whether a 403 is about what this one conversation says, and not about the key."""
    return _MODERATED.search(text) is not None


def is_hopeless(text: str) -> bool:
    """Say whether every other request would be refused too.

    For an unknown model, an empty account, or an answer as long as the model's whole window.
    """
    return _HOPELESS.search(text) is not None or _asks_for_window(text)


def error_text(payload: bytes, secrets: Iterable[str] = ()) -> str:
    """Give the provider's own words in one line of at most 300 characters, without the secrets."""
    return one_line(redact(error_words(payload), secrets))


def error_words(payload: bytes) -> str:
    """Give the provider's own words from an error body, whole.

    The error's `code` or `type` comes first, since some providers say only there what is wrong. A
    body in no known shape is given as it stands.
    """
    plain = payload.decode("utf-8", "replace")
    try:
        value: JSON = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeError):
        return plain
    if isinstance(value, list) and len(value) == 1:  # Google wraps its error in an array
        value = value[0]
    if isinstance(value, str):
        return value
    return _object_words(value) or plain


def redact(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret in a text, however it is encoded."""
    return Scrubber(secrets).text(text)


def one_line(text: str) -> str:
    """Make a text fit for a message: no control characters, at most 300 characters."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    line = " ".join(printable.split())
    return line if len(line) <= MAX_TEXT else f"{line[: MAX_TEXT - 1]}…"


def _asks_for_window(text: str) -> bool:
    """Say whether the tokens asked for an answer are the whole window or more."""
    found = (pattern.search(text) for pattern in _TOO_LONG_ANSWERS)
    return any(match and int(match["asked"]) >= int(match["window"]) for match in found)


def _object_words(value: JSON) -> str:
    """Find the message: in `error`, `message` or `detail`, or in an object under `error`."""
    if not isinstance(value, dict):
        return ""
    inner = value.get("error")
    if isinstance(inner, dict):
        return _object_words(inner)
    for candidate in (inner, value.get("message"), value.get("detail")):
        if isinstance(candidate, str) and candidate:
            return _kind(value, candidate) + candidate
        if isinstance(candidate, list | dict) and candidate:  # FastAPI lists what is wrong
            return msgspec.json.encode(candidate).decode()
    return ""


def _kind(value: dict[str, object], message: str) -> str:
    for kind in (value.get("code"), value.get("type")):
        if isinstance(kind, str) and kind:
            return "" if kind in message else f"{kind}: "
    return ""
