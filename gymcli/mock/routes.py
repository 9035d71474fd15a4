"""What the mock server answers beside the dialects: its models, its counts, its death."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from aiohttp import web

from gymcli.environment.addresses import is_loopback
from gymcli.mock.answering import ANY_MODEL
from gymcli.mock.refusals import key_refused
from gymcli.mock.site import Site
from gymcli.mock.stats import Stats

__all__ = ["control", "models"]


def models(names: Sequence[str] | None) -> web.Response:
    """List the models, or refuse to where there is no list."""
    if names is None:
        refusal = key_refused()
        body = (refusal.body or "").encode()
        return web.Response(body=body, status=refusal.status, content_type="application/json")
    data = [
        {"id": name, "object": "model", "created": 0, "owned_by": "gymcli"}
        for name in names or (ANY_MODEL,)
    ]
    return _json({"object": "list", "data": data})


async def control(request: web.BaseRequest, stats: Stats, site: Site) -> web.Response:
    """Answer `GET /stats` and `POST /down?seconds=N`; other paths are not there."""
    if request.path == "/stats" and request.method == "GET":
        return _json(stats)
    if request.path != "/down" or request.method != "POST":
        return _json(_error(f"there is no {request.method} {request.path} here"), status=404)
    if not is_loopback(request.remote or ""):
        return _json(_error("only this machine may ask for that"), status=403)
    text = request.query.get("seconds")
    try:
        seconds = None if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
        return _json(_error(f"seconds={text}: expected a number of seconds"), status=400)
    await site.fall(seconds, spared=request.transport)
    response = _json({"seconds": seconds})
    response.force_close()
    return response


def _error(message: str) -> object:
    return {"error": {"message": message, "type": "invalid_request_error"}}


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )
