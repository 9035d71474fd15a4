"""Which models an endpoint serves, where the user did not say which one is meant."""

from __future__ import annotations

import aiohttp
import msgspec

from gymcli.errors import InvalidAnswerError, UsageError, described
from gymcli.models.endpoint import checked_base_url
from gymcli.models.http import read_body
from gymcli.types import JSON_ERRORS

__all__ = ["served_model"]

_TIMEOUT = 10.0


class _Served(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Served]


async def served_model(base_url: str) -> str:
    """Give the one model that an endpoint lists under `/models` or `/v1/models`; no key is sent.

    Raises:
        UsageError: It is no address, or may hold a secret, and was not asked; or it cannot be
            asked, or serves several models, which the message names.

    """
    try:
        base_url = checked_base_url(base_url)
    except ValueError as error:
        raise UsageError(str(error)) from error
    way_out = "name the model behind the address: URL#MODEL"
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        status, body = await _asked(session, f"{base_url}/models", way_out)
        if status == 404:  # reward models are served beside /v1, not below it
            status, body = await _asked(session, f"{base_url}/v1/models", way_out)
    try:
        names = [model.id for model in msgspec.json.decode(body, type=_List).data]
    except JSON_ERRORS as error:
        text = f"GET {base_url}/models: status {status}, no list of models; {way_out}"
        raise UsageError(text) from error
    if len(names) != 1:
        raise UsageError(f"{base_url}: serves {', '.join(names) or 'no model'}; {way_out}")
    return names[0]


async def _asked(session: aiohttp.ClientSession, url: str, way_out: str) -> tuple[int, bytes]:
    try:
        async with session.get(url, allow_redirects=False) as response:
            return response.status, await read_body(response, f"GET {url}", _TIMEOUT)
    except InvalidAnswerError as error:
        raise UsageError(f"{error}; {way_out}") from error
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise UsageError(f"GET {url}: {described(error)}; {way_out}") from error
