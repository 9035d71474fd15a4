"""Which models an endpoint serves, where the user did not say which one is meant."""

from __future__ import annotations

import aiohttp
import msgspec

from gymcli.boundary import described
from gymcli.errors import UsageError
from gymcli.types import JSON_ERRORS

__all__ = ["served_model"]

_TIMEOUT = 10.0


class _Served(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Served]


async def served_model(base_url: str) -> str:
    """Give the one model that an endpoint lists under `/models`; no key is sent.

    Raises:
        UsageError: It cannot be asked, or serves several; the message names them.

    """
    way_out = f"name the model behind a #: {base_url}#MODEL"
    place = f"GET {base_url}/models"
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{base_url}/models", allow_redirects=False) as response,
        ):
            status, body = response.status, await response.read()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise UsageError(f"{place}: {described(error)}; {way_out}") from error
    try:
        names = [model.id for model in msgspec.json.decode(body, type=_List).data]
    except JSON_ERRORS as error:
        raise UsageError(f"{place}: status {status}, no list of models; {way_out}") from error
    if len(names) != 1:
        raise UsageError(f"{place}: serves {', '.join(names) or 'no model'}; {way_out}")
    return names[0]
