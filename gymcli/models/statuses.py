"""Turns what an endpoint answers instead of a message into the error that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urljoin, urlsplit

import aiohttp

from gymcli.errors import (
    AttemptError,
    AuthenticationError,
    ContextOverflowError,
    EndpointConnectionError,
    EndpointGoneError,
    ModelError,
    RateLimitError,
    RequestRefusedError,
    ServerError,
)
from gymcli.models.dialects import DIALECTS
from gymcli.models.endpoint import Endpoint
from gymcli.models.refusals import (
    answer_claims,
    error_claims,
    error_text,
    is_context_overflow,
    is_hopeless,
    is_moderated,
    is_permanent,
    one_line,
    redact,
)
from gymcli.models.retry import retry_after_seconds

__all__ = ["error_of_body", "error_of_status", "is_fatal"]

_WAYS_OUT = {
    401: "check the key (--api-key-env, or api_key_env in gym.toml)",
    403: "check what the key allows",
    404: "check --base-url and --model, or the --role that names them",
    405: "check --base-url and --dialect, or the --role that names them",
}

# No money left; no such model or path. A refused 429 is either quota or a request that is too
# large for it, and only the first holds for every request, so its words decide.
_FATAL_STATUSES = frozenset({402, 404, 405})


def error_of_status(
    status: int,
    headers: Mapping[str, str],
    payload: bytes,
    *,
    place: str,
    endpoint: Endpoint,
) -> ModelError:
    """Make the error of an answer whose status is not 2xx.

    Args:
        status: The HTTP status.
        headers: The answer's headers, found whatever their case.
        payload: The answer's body.
        place: Method and address, for the message.
        endpoint: Who answered; its secrets are kept out of the message.

    """
    if status // 100 == 3:
        return _error_of_redirect(status, headers, place, endpoint)
    claims = error_claims(payload)
    told = error_text(payload, endpoint.secrets)
    message = f"{place} answered {status}" + (f": {told}" if told else "")
    if status in _WAYS_OUT:
        message += f"; {_WAYS_OUT[status]}"
    return _class_of(status, claims)(
        message,
        status=status,
        retry_after=retry_after_seconds(headers),
        is_hopeless=is_hopeless(claims),
    )


def error_of_body(error: ModelError, payload: bytes, place: str, endpoint: Endpoint) -> ModelError:
    """Make the error of a 2xx answer whose body a dialect refused.

    Some gateways answer 200 and put the provider's error into the body; it means what it would
    have meant as a status. What is no error object says nothing, whatever its words.
    """
    claims = answer_claims(payload)
    status = error.status or 0
    kind = type(error)
    if status >= 400 or is_context_overflow(status, claims) or is_permanent(claims):
        kind = _class_of(status, claims)
    message = f"{place}: {one_line(redact(str(error), endpoint.secrets))}"
    return kind(message, status=error.status, is_hopeless=is_hopeless(claims))


def is_fatal(error: AttemptError) -> bool:
    """Say whether an error may well meet every request of the run, and not only this one.

    That is a refused key, a model or a path that does not exist, no money left, a redirect, an
    endpoint that no connection could be made to, and one that was given up.
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


def _class_of(status: int, claims: Sequence[str]) -> type[ModelError]:
    if is_context_overflow(status, claims):
        return ContextOverflowError
    if is_permanent(claims) or (status == 403 and is_moderated(claims)):
        return RequestRefusedError
    if status in (401, 403):
        return AuthenticationError
    if status == 429:
        return RateLimitError
    if status in (408, 409) or status >= 500:
        return ServerError
    return RequestRefusedError


def _error_of_redirect(
    status: int, headers: Mapping[str, str], place: str, endpoint: Endpoint
) -> ModelError:
    """Name the new address without following it: the key was given for the old one."""
    location = urlsplit(urljoin(place.removeprefix("POST "), headers.get("location", "")))
    path = location.path.removesuffix(DIALECTS[endpoint.dialect].path)
    target = f"{location.scheme}://{location.netloc.rpartition('@')[2]}{path}"
    words = redact(
        f"{place} answered {status}: it has moved; use the address {target}", endpoint.secrets
    )
    return RequestRefusedError(one_line(words), status=status)
