"""Classifies the errors of endpoints by status, error code and the start of the message.

Retried: no connection, no answer in time, 408, 409, 429, 5xx, and a body that is not an answer. Not
retried: every other 4xx, a 5xx whose message shows that it is permanent, a redirect, an untrusted
certificate, a conversation that is too long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal, TypeAlias
from urllib.parse import urljoin, urlsplit

import aiohttp
import msgspec

from gymcli.errors import (
    AttemptError,
    AuthenticationError,
    ContextOverflowError,
    EndpointConnectionError,
    EndpointGoneError,
    EndpointTimeoutError,
    InvalidAnswerError,
    ModelError,
    RateLimitError,
    RequestRefusedError,
    ServerError,
)
from gymcli.models.chat import decode
from gymcli.models.dialects import DIALECTS
from gymcli.models.endpoint import Endpoint
from gymcli.secrets import Scrubber
from gymcli.types import JSON, JSON_ERRORS

__all__ = [
    "CLAIMS",
    "TOO_LONG_ANSWERS",
    "answer_claims",
    "error_claims",
    "error_of_body",
    "error_of_status",
    "error_words",
    "is_absence",
    "is_connect_timeout",
    "is_fatal",
    "is_overload",
    "is_retried",
    "is_silence",
    "is_unreachable",
    "meanings_of",
    "one_line",
    "retry_after_seconds",
]

Meaning: TypeAlias = Literal[
    "context overflow", "permanent", "moderated", "hopeless", "rate limit", "server error"
]

CLAIMS: dict[Meaning, tuple[str, ...]] = {
    "context overflow": (  # the conversation no longer fits the model
        # OpenAI, in the `code` of both dialects; Azure and many gateways repeat it
        r"context_length_exceeded",
        # OpenAI's chat completions, DeepSeek, OpenRouter, vLLM:
        # "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens"
        r"(this|the) (model|endpoint)'s maximum context length is\b",
        # vLLM: "'max_tokens' or 'max_completion_tokens' is too large: 8191. This model's maximum
        # context length is 8192 tokens and your request has 20 input tokens (8191 > 8192 - 20)."
        r"'max_tokens' or 'max_completion_tokens' is too large: \d+\. this model's maximum context",
        # OpenAI's Responses: "Your input exceeds the context window of this model."
        r"(your|the) (input|prompt|request) exceeds? the context window",
        # vLLM: "The prompt (total length 25938) is too long to fit into the model", and
        # "The decoder prompt (length 5000) is longer than the maximum model length of 4096."
        r"the ((de|en)coder )?prompt \(.{0,40}length \d+\) is (too long|longer than the maximum)",
        # vLLM: "Input length (265330) exceeds model's maximum context length (262144)."
        r"input length \(\d+\) exceeds (the )?model's maximum context length",
        # vLLM: "You passed 31745 input tokens and requested 1024 output tokens. However, the
        # model's context length is only 32768 tokens, resulting in a maximum input length of 31744"
        r"you passed \d+ input .{0,80}the model's context length is only \d+ tokens",
        # vLLM: "max_tokens must be at least 1, got -186.": the prompt left no room for an answer
        r"max_(completion_)?tokens must be at least 1, got -\d+",
        # SGLang: "The input (61709 tokens) is longer than the model's context length (40960
        # tokens)."
        r"(the )?input \(\d+ tokens\) is longer than the model's context length",
        # SGLang: "Requested token count exceeds the model's maximum context length of 40960
        # tokens."
        r"requested token count exceeds the model's maximum context length",
        # SGLang: "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)."
        r"input length \(\d+ tokens\) exceeds the maximum allowed length",
        # llama.cpp, in the `type`
        r"exceed_context_size_error",
        # llama.cpp: "request (4390 tokens) exceeds the available context size (4096 tokens)"
        r"(the )?request (\(\d+ tokens\) )?exceeds the available context size",
        # llama.cpp and LM Studio, with status 500: "Context size has been exceeded."
        r"(the )?context size has been exceeded",
        # llama-cpp-python: "Requested tokens (2285) exceed context window of 2048"
        r"requested tokens \(\d+\) exceed context window",
        # Anthropic: "prompt is too long: 210000 tokens > 200000 maximum"
        r"prompt is too long(:|\.?$)",
        # Anthropic: "input length and `max_tokens` exceed context limit: 189136 + 20000 > 204648"
        r"input length and `max_tokens` exceed context limit",
        # Amazon Bedrock: "Input is too long for requested model."
        r"input is too long for requested model",
        # Google: "The input token count (9000) exceeds the maximum number of tokens allowed
        # (8192)."
        r"(the )?input token count.{0,20} exceeds the maximum number of tokens",
        # xAI: "This model's maximum prompt length is 131072 but the request contains 537812 tokens"
        r"this model's maximum prompt length is \d+",
        # LiteLLM, for every provider behind it
        r"litellm\.ContextWindowExceededError",
        # Text Generation Inference:
        # "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: ..."
        r"(input (validation )?error: )?`inputs` tokens \+ `max_new_tokens` must be <=",
    ),
    "permanent": (  # waiting does not help, although the status suggests that it does
        # llama.cpp, with status 500: "image input is not supported - hint: ... provide the mmproj"
        r"(image|audio|video) input is not supported",
        # llama.cpp, with status 500: "tools param requires --jinja flag"
        r"\w+ param requires --jinja",
        # llama.cpp, with status 501 or 500: "This server does not support chat completions ..."
        r"this server does not support",
        # OpenAI, with status 429, in the `code`: the account has no money left
        r"insufficient_quota",
        # OpenAI, with status 429: "Request too large for gpt-4o ... on tokens per min (TPM)"
        r"request too large for",
    ),
    "moderated": (  # with status 403: about this conversation's text, not about the key
        # OpenRouter: "m requires moderation on p. Your input was flagged for "violence"."
        r"(\S+ requires moderation .{0,100})?your input was flagged",
        # OpenAI and Azure, in the `code`
        r"content_policy_violation",
        r"content_filter",
    ),
    "hopeless": (  # every other request would be refused too
        # OpenAI, in the `code`: the account has no money left
        r"insufficient_quota",
        # OpenAI, in the `code`
        r"model_not_found",
        # vLLM and SGLang: "The model `x` does not exist."
        r"the model .{1,200} does not exist",
        # Ollama: "model 'x' not found, try pulling it first"
        r"model \S{1,200} not found",
        # OpenRouter, with status 400: "x is not a valid model ID"
        r"\S{1,200} is not a valid model id",
    ),
    "rate limit": (r"rate_limit_(exceeded|error)$",),  # OpenAI and Anthropic, without a status
    "server error": (  # OpenAI and Anthropic, without a status
        r"(internal_)?server_error$",
        r"overloaded_error$",
    ),
}
"""Regular expressions for the start of error codes and messages, by meaning."""

TOO_LONG_ANSWERS = (
    # vLLM: "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum
    # context length is 8192 tokens and your request has 20 input tokens (9000 > 8192 - 20)."
    r"'max_tokens' or 'max_completion_tokens' is too large: (?P<asked>\d{1,12})\b"
    r".{0,40}context length is (?P<window>\d{1,12})",
    # vLLM: "You passed 20 input tokens and requested 9000 output tokens. However, the model's
    # context length is only 8192 tokens"
    r"you passed \d+ input tokens and requested (?P<asked>\d{1,12}) output tokens\b"
    r".{0,40}length is only (?P<window>\d{1,12})",
    # OpenAI and vLLM: "This model's maximum context length is 8192 tokens. However, you requested
    # 9020 tokens (20 in the messages, 9000 in the completion)."
    r"this model's maximum context length is (?P<window>\d{1,12}) tokens"
    r".{0,120} (?P<asked>\d{1,12}) in the completion",
)
"""Refusals of too many tokens: `asked` is what the answer may take, `window` the model's limit."""


def _starting_with(patterns: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern for the start of a code or message, after any names of error classes.

    Gateways prefix them to the provider's message: "litellm.BadRequestError: OpenAIException - This
    model's maximum context length is ...".
    """
    names = r"\s*([\w.]*(error|exception)(:| -)\s+)*"
    return re.compile(f"{names}({'|'.join(patterns)})", re.IGNORECASE)


_CLAIMS = {meaning: _starting_with(patterns) for meaning, patterns in CLAIMS.items()}
_TOO_LONG_ANSWERS = [_starting_with([pattern]) for pattern in TOO_LONG_ANSWERS]

_CLASSES: dict[int, type[ModelError]] = {
    401: AuthenticationError,
    403: AuthenticationError,
    408: ServerError,
    409: ServerError,
    429: RateLimitError,
}
"""Any other status from 500 on is a ServerError, the rest are a RequestRefusedError."""

_NO_OVERFLOW_STATUSES = frozenset({401, 403, 404, 408, 409, 429})
"""Errors about keys, missing pages and rate limits are never about a conversation's length, even
when a rate limit mentions tokens."""

_FATAL_STATUSES = frozenset({402, 404, 405})
"""No money left; no such model or path. A refused 429 is not among them: only an exhausted quota
affects every request, a request that is too large does not, so its message decides."""

_WAYS_OUT = {
    401: "check the key (--api-key-env, or api_key_env in gym.toml)",
    403: "check what the key allows",
    404: "check --base-url and --model, or the --role that names them",
    405: "check --base-url and --dialect, or the --role that names them",
}

_RETRIED = (
    EndpointConnectionError,
    EndpointTimeoutError,
    InvalidAnswerError,
    RateLimitError,
    ServerError,
)
_OVERLOADS = frozenset({429, 503, 529})
_NO_SERVER_BEHIND = frozenset({502, 503, 504})

_MAX_TEXT = 300
"""Characters of a provider's message that are shown."""


def error_of_status(
    status: int,
    headers: Mapping[str, str],
    payload: bytes,
    *,
    place: str,
    endpoint: Endpoint,
) -> ModelError:
    """Return the error for an answer whose status is not 2xx, without the endpoint's secrets."""
    if status // 100 == 3:
        return _error_of_redirect(status, headers, place, endpoint)
    meanings = meanings_of(error_claims(payload))
    words = one_line(error_words(payload), endpoint.secrets)
    message = f"{place} answered {status}" + (f": {words}" if words else "")
    if status in _WAYS_OUT:
        message += f"; {_WAYS_OUT[status]}"
    return _class_of(status, meanings)(
        message,
        status=status,
        retry_after=retry_after_seconds(headers),
        is_hopeless="hopeless" in meanings,
    )


def error_of_body(error: ModelError, payload: bytes, place: str, endpoint: Endpoint) -> ModelError:
    """Return the error for a 2xx answer whose body a dialect refused.

    Some gateways answer 200 and put the provider's error into the body; it is classified as if it
    had come with its own status. Text outside an error object is not classified.
    """
    meanings = meanings_of(answer_claims(payload))
    status = error.status or 0
    kind = type(error)
    if status >= 400 or meanings & {"context overflow", "permanent"}:
        kind = _class_of(status, meanings)
    elif "rate limit" in meanings:
        kind = RateLimitError
    elif "server error" in meanings:
        kind = ServerError
    message = f"{place}: {one_line(str(error), endpoint.secrets)}"
    return kind(message, status=error.status, is_hopeless="hopeless" in meanings)


def _error_of_redirect(
    status: int, headers: Mapping[str, str], place: str, endpoint: Endpoint
) -> ModelError:
    """Name the new address but do not follow it: the key is for the old one."""
    location = urlsplit(urljoin(place.removeprefix("POST "), headers.get("location", "")))
    path = location.path.removesuffix(DIALECTS[endpoint.dialect].path)
    target = f"{location.scheme}://{location.netloc.rpartition('@')[2]}{path}"
    message = f"{place} answered {status}: it has moved; use the address {target}"
    return RequestRefusedError(one_line(message, endpoint.secrets), status=status)


def _class_of(status: int, meanings: set[Meaning]) -> type[ModelError]:
    if "context overflow" in meanings and status not in _NO_OVERFLOW_STATUSES:
        return ContextOverflowError
    if "permanent" in meanings or (status == 403 and "moderated" in meanings):
        return RequestRefusedError
    return _CLASSES.get(status, ServerError if status >= 500 else RequestRefusedError)


def meanings_of(claims: Sequence[str]) -> set[Meaning]:
    """Return the meanings of an error's claims, by `CLAIMS`."""
    meanings = {name for name, pattern in _CLAIMS.items() if any(map(pattern.match, claims))}
    found = (pattern.match(claim) for pattern in _TOO_LONG_ANSWERS for claim in claims)
    if any(match and int(match["asked"]) >= int(match["window"]) for match in found):
        # The answer alone exceeds the window, so that a shorter conversation would not help.
        meanings = meanings - {"context overflow"} | {"permanent", "hopeless"}
    return meanings


def error_claims(payload: bytes) -> list[str]:
    """Return the claims of an error body: its code, its type and its message.

    The whole body is the message if it is not JSON. Lists in a body are not claims.
    """
    return _claims(_innermost_error(payload))


def answer_claims(payload: bytes) -> list[str]:
    """Return the claims of the error in a body with status 200; none if it has no error."""
    try:
        body = decode(payload)
    except InvalidAnswerError:
        return []
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    found = body.get("error") or (isinstance(choice, dict) and choice.get("error"))
    if not found and body.get("object") == "error":
        found = body
    return _claims(found) if isinstance(found, str | dict) else []


def _innermost_error(payload: bytes) -> JSON:
    """Return a body's error: the innermost object under `error`, or a text."""
    try:
        value: JSON = msgspec.json.decode(payload)
    except JSON_ERRORS:
        return payload.decode("utf-8", "replace")
    if isinstance(value, list) and len(value) == 1:  # Google wraps its error in an array
        value = value[0]
    while isinstance(value, dict) and isinstance(value.get("error"), dict):
        value = value["error"]
    return value


def _claims(error: JSON) -> list[str]:
    if isinstance(error, str):
        return [error]
    if not isinstance(error, dict):
        return []
    said = (error.get(name) for name in ("code", "type", "error", "message", "detail"))
    claims = [one for one in said if isinstance(one, str)]
    # OpenRouter puts the provider's own error body here.
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    return claims + _claims(_innermost_error(raw.encode())) if isinstance(raw, str) else claims


def error_words(payload: bytes) -> str:
    """Return the provider's message from an error body, uncut.

    The error's `code` or `type` comes first, since some providers name the problem only there. A
    body of unknown shape is returned unchanged.
    """
    error = _innermost_error(payload)
    if isinstance(error, str):
        return error
    if isinstance(error, dict):
        for words in (error.get("error"), error.get("message"), error.get("detail")):
            if isinstance(words, str) and words:
                kinds = (error.get("code"), error.get("type"))
                kind = next((kind for kind in kinds if isinstance(kind, str) and kind), "")
                return words if kind in words else f"{kind}: {words}"
            if isinstance(words, list | dict) and words:  # FastAPI lists the invalid fields
                return msgspec.json.encode(words).decode()
    return payload.decode("utf-8", "replace")


def one_line(text: str, secrets: Iterable[str]) -> str:
    """Return a text as one line of at most 300 characters, without secrets in any encoding."""
    printable = "".join(c if c.isprintable() else " " for c in Scrubber(secrets).text(text))
    line = " ".join(printable.split())
    return line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 1]}…"


def retry_after_seconds(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Read `retry-after-ms`, or `Retry-After` in seconds or as a date; None if it is neither."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:  # it may be a date
            continue
        return seconds if 0 <= seconds < float("inf") else None
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    if moment.tzinfo is None:  # "-0000" has no zone by RFC 5322; HTTP dates are in GMT
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def is_fatal(error: AttemptError) -> bool:
    """Return whether an error probably affects every request of the run, not only this one.

    These are a refused key, a model or path that does not exist, no money left, a redirect, an
    endpoint that cannot be connected to, and one that was given up.
    """
    if isinstance(error, AuthenticationError | EndpointGoneError):
        return True
    if isinstance(error, EndpointConnectionError):
        return isinstance(error.__cause__, aiohttp.ClientConnectorError)
    if not isinstance(error, RequestRefusedError):
        return False
    if error.is_hopeless or error.status is None:
        return error.is_hopeless
    is_redirect = error.status // 100 == 3
    return is_redirect or error.status in _FATAL_STATUSES


def is_retried(error: BaseException) -> bool:
    """Return whether the same request may succeed when it is sent again."""
    if isinstance(error.__cause__, aiohttp.ClientConnectorCertificateError):
        return False
    return isinstance(error, _RETRIED)


def is_unreachable(error: BaseException | None) -> bool:
    """Return whether no connection could be made: refused, no such host, or no response."""
    causes = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
    return isinstance(error, ModelError) and isinstance(error.__cause__, causes)


def is_connect_timeout(error: BaseException) -> bool:
    """Return whether the connection timed out, as happens when too many are opened at a time."""
    return isinstance(error.__cause__, aiohttp.ConnectionTimeoutError)


def is_overload(error: BaseException | None) -> bool:
    """Return whether the endpoint reported that it is overloaded: 429, 503, 529."""
    return isinstance(error, RateLimitError | ServerError) and error.status in _OVERLOADS


def is_absence(error: ModelError) -> bool:
    """Return whether an error suggests that the endpoint is down.

    These are no connection, one that broke before an answer, and a gateway with no server behind
    it. A 500, an invalid body and a body that breaks off come from an endpoint that is up.
    """
    if isinstance(error, ServerError):
        return error.status in _NO_SERVER_BEHIND
    return (
        is_retried(error)
        and isinstance(error.__cause__, aiohttp.ClientConnectionError)
        and (is_unreachable(error) or not isinstance(error, EndpointTimeoutError))
    )


def is_silence(error: ModelError) -> bool:
    """Return whether an accepted request got no answer in time; the endpoint may be up or down."""
    return isinstance(error, EndpointTimeoutError) and not is_unreachable(error)
