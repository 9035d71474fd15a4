"""What a failed try says of its endpoint: passing or final, overloaded, out of reach.

Retried: no connection, no answer in time, 408, 409, 429, 5xx, and a body that is no answer. Not
retried: every other 4xx, a 5xx whose words say that it will stay, a redirect, a certificate that
cannot be trusted, a conversation that is too long.
"""

from __future__ import annotations

import aiohttp

from gymcli.errors import (
    EndpointConnectionError,
    EndpointTimeoutError,
    InvalidAnswerError,
    ModelError,
    RateLimitError,
    ServerError,
)

__all__ = [
    "is_absence",
    "is_connect_timeout",
    "is_overload",
    "is_retried",
    "is_silence",
    "is_unreachable",
]

RETRIED = (
    EndpointConnectionError,
    EndpointTimeoutError,
    InvalidAnswerError,
    RateLimitError,
    ServerError,
)

_OVERLOADS = frozenset({429, 503, 529})
_NO_SERVER_BEHIND = frozenset({502, 503, 504})


def is_retried(error: BaseException) -> bool:
    """Say whether the same request may succeed a moment later."""
    if isinstance(error.__cause__, aiohttp.ClientConnectorCertificateError):
        return False
    return isinstance(error, RETRIED)


def is_unreachable(error: BaseException | None) -> bool:
    """Say whether no connection could be made: refused, no such host, or nobody there."""
    causes = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
    return isinstance(error, ModelError) and isinstance(error.__cause__, causes)


def is_connect_timeout(error: BaseException) -> bool:
    """Say whether nobody took the connection in time, as where too many are being made."""
    return isinstance(error.__cause__, aiohttp.ConnectionTimeoutError)


def is_overload(error: BaseException | None) -> bool:
    """Say whether the endpoint answered that it has too much to do: 429, 503, 529."""
    return isinstance(error, RateLimitError | ServerError) and error.status in _OVERLOADS


def is_absence(error: ModelError) -> bool:
    """Say whether the endpoint seems to be gone.

    No connection, one that broke before an answer, or a gateway with no server behind it. A 500, a
    body that is no answer and one that breaks off come from an endpoint that is there.
    """
    if isinstance(error, ServerError):
        return error.status in _NO_SERVER_BEHIND
    return (
        is_retried(error)
        and isinstance(error.__cause__, aiohttp.ClientConnectionError)
        and (is_unreachable(error) or not isinstance(error, EndpointTimeoutError))
    )


def is_silence(error: ModelError) -> bool:
    """Say whether a request that was taken got no answer in time, which proves nothing."""
    return isinstance(error, EndpointTimeoutError) and not is_unreachable(error)
