"""Classifies the errors of endpoints by status, error code and the start of the message.

Retried: no connection, no answer in time, 408, 409, 429, 5xx, a refusal for too many requests with
another status, and a body that is not an answer. Not retried: every other 4xx, a 5xx whose error
object shows that it is permanent, a redirect, an untrusted certificate, a conversation that is too
long or that a filter refuses, and a tool call that the endpoint cannot read.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import MAXYEAR, UTC, datetime
from email.utils import parsedate_to_datetime, parsedate_tz
from itertools import islice
from urllib.parse import urljoin, urlsplit

import aiohttp
import msgspec
from pydantic_core import from_json

from gymcli.errors import (
    AttemptError,
    AuthenticationError,
    ContextOverflowError,
    EndpointConnectionError,
    EndpointGoneError,
    EndpointTimeoutError,
    InvalidAnswerError,
    MalformedCallError,
    ModelError,
    PromptFilteredError,
    RateLimitError,
    RequestRefusedError,
    ServerError,
)
from gymcli.models.chat import decode
from gymcli.models.dialects import DIALECTS
from gymcli.models.endpoint import Endpoint
from gymcli.models.error_wordings import Meaning, meanings_of, quoted_call, start_of_wrapped
from gymcli.nemo_gym.payload import argument_text, object_in, objects_in
from gymcli.secrets import Scrubber
from gymcli.types import JSON, JSON_ERRORS, JSONObject

_CLASSES: dict[int, type[ModelError]] = {
    401: AuthenticationError,
    403: AuthenticationError,
    408: ServerError,
    409: ServerError,
    429: RateLimitError,
}
"""Any other status from 500 on is a ServerError, the rest are a RequestRefusedError."""

_UNRELATED_STATUSES = frozenset({401, 402, 404, 408, 409, 429})
"""Errors about keys, money, missing pages and rate limits are never about this conversation, even
when a rate limit mentions tokens."""

_REFUSALS = frozenset({400, 403, 413, 422})
"""Statuses that some providers send with a rate limit."""

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
_OVERLOADS = frozenset({503, 529})
_NO_SERVER_BEHIND = frozenset({502, 503, 504})

_MAX_TEXT = 300
"""Characters of a provider's message that are shown."""
_MAX_SOURCE = 2000
"""Characters of a message of which the shown ones are made: without secrets and line breaks."""
_MAX_CLAIMS = 50
"""Texts of an error that are classified: providers send a few, each below the one before."""
_MAX_WRAPPED = 2**20
"""Characters of a text in which the error of another provider is looked for."""

_LONGEST_WAIT = 86_400.0
"""Seconds; an endpoint that asks for a longer wait than a day asks for this one."""

_CLAIM_FIELDS = (
    "code",
    "type",
    "status",  # Google: "RESOURCE_EXHAUSTED"
    "error",
    "message",
    "detail",
    "status_msg",  # MiniMax
    "innererror",  # Azure
)


def error_of_status(
    status: int,
    headers: Mapping[str, str],
    payload: bytes,
    *,
    request: bytes,
    place: str,
    endpoint: Endpoint,
) -> ModelError:
    """Return the error for an answer whose status is not 2xx, without the endpoint's secrets."""
    if status // 100 == 3:
        return _error_of_redirect(status, headers, place, endpoint)
    error = innermost_error(payload)
    # A page of a proxy may quote anything.
    is_page = status >= 500 and not isinstance(error, dict)
    claims = [] if is_page else claims_of(error)
    words = one_line(error_words(payload), endpoint.secrets)
    return _classified(
        status,
        _class_of_status(status),
        claims,
        error,
        request=request,
        message=f"{place} answered {status}" + (f": {words}" if words else ""),
        retry_after=retry_after_seconds(headers),
    )


def error_of_body(
    error: ModelError, body: JSONObject, *, request: bytes, place: str, endpoint: Endpoint
) -> ModelError:
    """Return the error for a 2xx answer whose body a dialect refused.

    Some gateways answer 200 and put the provider's error into the body; it is classified as if it
    had come with its own status. Text outside an error object is not classified.
    """
    value = error_in_answer(body)
    status = error.status if error.status is not None and error.status >= 400 else None
    default = type(error) if status is None else _class_of_status(status)
    message = f"{place}: {one_line(str(error), endpoint.secrets)}"
    classified = _classified(
        status, default, claims_of(value), value, request=request, message=message
    )
    classified.status = error.status
    return classified


def _classified(
    status: int | None,
    default: type[ModelError],
    claims: list[str],
    error: JSON,
    *,
    request: bytes,
    message: str,
    retry_after: float | None = None,
) -> ModelError:
    """Return the error that a status and claims mean; without a meaning, one of the default."""
    meanings = meanings_of(claims, request)
    kind = _class_of(status, meanings, default)
    if kind is MalformedCallError:
        return MalformedCallError(message, text=_malformed_call(error), status=status)
    if kind is default and status in _WAYS_OUT:
        message += f"; {_WAYS_OUT[status]}"
    is_hopeless = "hopeless" in meanings
    return kind(message, status=status, retry_after=retry_after, is_hopeless=is_hopeless)


def _error_of_redirect(
    status: int, headers: Mapping[str, str], place: str, endpoint: Endpoint
) -> ModelError:
    """Name the new address but do not follow it: the key is for the old one."""
    location = urlsplit(urljoin(place.removeprefix("POST "), headers.get("location", "")))
    path = location.path.removesuffix(DIALECTS[endpoint.dialect].path)
    target = f"{location.scheme}://{location.netloc.rpartition('@')[2]}{path}"
    message = f"{place} answered {status}: it has moved; use the address {target}"
    return RequestRefusedError(one_line(message, endpoint.secrets), status=status)


def _class_of_status(status: int) -> type[ModelError]:
    return _CLASSES.get(status, ServerError if status >= 500 else RequestRefusedError)


def _class_of(
    status: int | None, meanings: set[Meaning], default: type[ModelError]
) -> type[ModelError]:
    if status not in _UNRELATED_STATUSES:
        if "malformed call" in meanings:
            return MalformedCallError
        if "filtered" in meanings:
            return PromptFilteredError
        if "full cache" in meanings:
            return ServerError
        # A 403 is about rights, and sometimes about a filter.
        if "context overflow" in meanings and status != 403:
            return ContextOverflowError
    if "permanent" in meanings:
        return RequestRefusedError
    if "rate limit" in meanings and (status is None or status in _REFUSALS):
        return RateLimitError
    if "server error" in meanings and status is None:
        return ServerError
    return default


def error_in_answer(body: JSONObject) -> JSON:
    """Return the error in a body with status 200; None if it has none."""
    choice = next(iter(objects_in(body.get("choices"))), {})
    if error := body.get("error") or choice.get("error"):
        return error
    if body.get("object") == "error":
        return body
    # Gemini refuses a prompt with an answer that has no candidates.
    if reason := object_in(body.get("promptFeedback")).get("blockReason"):
        return {"code": "content_filter", "message": reason}
    # MiniMax sends `base_resp` with every answer; 0 is its success.
    base = object_in(body.get("base_resp"))
    return base if base.get("status_code") else None


def innermost_error(payload: bytes) -> JSON:
    """Return a body's error: the innermost object under `error`; the body itself if not JSON."""
    try:
        value: JSON = msgspec.json.decode(payload)
    except JSON_ERRORS:
        try:
            value = decode(payload)  # it takes NaN, and half a character in a quoted text
        except InvalidAnswerError:
            value = _start_of_json(payload) or payload.decode("utf-8", "replace")
    if isinstance(value, list) and len(value) == 1:  # Google wraps its error in an array
        value = value[0]
    return _unwrapped(value)


def _start_of_json(payload: bytes) -> JSON:
    """Return an object or list that was cut off, as far as it goes; None if it is neither."""
    try:
        value: JSON = from_json(payload, allow_partial="trailing-strings")
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _unwrapped(body: JSON) -> JSON:
    while isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    return body


def _error_values(error: JSON) -> Iterator[str | JSONObject]:
    """Yield the texts and objects of an error, the outer ones first."""
    pending = deque([error])
    while pending:
        value = pending.popleft()
        if isinstance(value, str):
            yield value
            pending.append(_wrapped_error(value))
        elif isinstance(value, dict):
            yield value
            pending += [value.get(name) for name in _CLAIM_FIELDS]
            # Google: [{"reason": "rateLimitExceeded", ...}]
            pending += [item.get("reason") for item in objects_in(value.get("errors"))]
            # OpenRouter puts the provider's own error body here.
            raw = object_in(value.get("metadata")).get("raw")
            if isinstance(raw, str):
                pending.append(innermost_error(raw[:_MAX_WRAPPED].encode()))


def _wrapped_error(text: str) -> JSON:
    """Return the error body of a provider that a gateway wrote into its own message, if any.

    LiteLLM: `litellm.BadRequestError: GroqException - {"error": {"message": ...}}`.
    """
    text = text[:_MAX_WRAPPED]
    start = start_of_wrapped(text)
    if start is None:
        return None
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)  # LiteLLM writes more after it
        body = decode(text[start:end].encode())
    except (ValueError, RecursionError, InvalidAnswerError):
        body = object_in(_start_of_json(text[start:].encode("utf-8", "replace")))
    return _unwrapped(body) if body.get("error") else None


def claims_of(error: JSON) -> list[str]:
    """Return the claims of an error: its codes, its types and its messages, but no lists."""
    texts = (value for value in _error_values(error) if isinstance(value, str))
    return list(islice(texts, _MAX_CLAIMS))


def _malformed_call(error: JSON) -> str:
    """Return what the model wrote, from an error that quotes it; empty if none does."""
    for value in islice(_error_values(error), 2 * _MAX_CLAIMS):
        if isinstance(value, dict) and (written := value.get("failed_generation")):
            return argument_text(written)
    return quoted_call(claims_of(error))


def error_words(payload: bytes) -> str:
    """Return the provider's message from an error body, uncut.

    The error's `code` or `type` comes first, since some providers name the problem only there. A
    body of unknown shape is returned unchanged.
    """
    error = innermost_error(payload)
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
    """Return the start of a text as one line of at most 300 characters, without secrets."""
    # A cut may divide a secret; the mark of a cut makes the scrubber look for its beginning.
    start = text if len(text) <= _MAX_SOURCE else f"{text[:_MAX_SOURCE]}…"
    printable = "".join(c if c.isprintable() else " " for c in Scrubber(secrets).text(start))
    line = " ".join(printable.split())
    return line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 1]}…"


def retry_after_seconds(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Read `retry-after-ms`, or `Retry-After` in seconds or as a date; None if it is neither.

    A wait of more than a day is one of a day.
    """
    text = headers.get("retry-after", "")
    for number, unit in ((headers.get("retry-after-ms", ""), 0.001), (text, 1.0)):
        try:
            seconds = float(number) * unit
        except ValueError:  # it may be a date
            continue
        if seconds >= 0:  # neither negative nor NaN
            return min(seconds, _LONGEST_WAIT)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # no date, or one with a year that no date can have
        fields = parsedate_tz(text)
        return _LONGEST_WAIT if fields is not None and fields[0] > MAXYEAR else None
    if moment.tzinfo is None:  # "-0000" has no zone by RFC 5322; HTTP dates are in GMT
        moment = moment.replace(tzinfo=UTC)
    seconds = (moment - (now or datetime.now(UTC))).total_seconds()
    return min(max(0.0, seconds), _LONGEST_WAIT)


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
    """Return whether the endpoint reported that it is overloaded: a rate limit, 503, 529."""
    if isinstance(error, RateLimitError):  # some send 403 or 400, or 200 with an error object
        return True
    return isinstance(error, ServerError) and error.status in _OVERLOADS


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
