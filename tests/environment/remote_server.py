"""Resources servers with NeMo Gym's protocol, on a free port of 127.0.0.1.

Like the real ones, they validate requests (422), send a signed session cookie with every answer,
and start a new and empty session for a request without the cookie.
"""

import asyncio
import base64
import hashlib
import json
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import NamedTuple

import msgspec
from aiohttp import web

CREATE_PARAMS = {
    *("input", "background", "include", "instructions", "max_output_tokens", "max_tool_calls"),
    *("metadata", "model", "parallel_tool_calls", "previous_response_id", "prompt", "reasoning"),
    *("service_tier", "store", "temperature", "text", "tool_choice", "tools", "top_logprobs"),
    *("top_p", "truncation", "user", "stream"),
}
RESPONSE_KEYS = {
    *("id", "created_at", "model", "object", "output"),
    *("parallel_tool_calls", "tool_choice", "tools"),
}
USAGE_KEYS = {"input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details"}


class Received(NamedTuple):
    path: str
    """As received, still encoded."""
    session_id: str
    body: object


class ResourcesServer:
    """A server of the seed/verify protocol with a counter per session, and switches for faults.

    Args:
        cookies: `kept`, `none` (never sets one), `ignored` (every call opens a new session)
            or `late` (the first answer loses its cookie, as behind a careless proxy).
        mode: The answer of `/reverify_mode`; None: it does not exist.
        faults: By path, what replaces the real answer: a status and a body, `stall`, or
            how often the connection breaks.
    """

    server_class = "CounterResourcesServer"

    def __init__(self, *, cookies="kept", mode="unknown", faults=None):
        self.cookies = cookies
        self.mode = mode
        self.faults = dict(faults or {})
        self.requests: list[Received] = []
        self.state = defaultdict(dict)
        self.num_sessions = 0
        self._open = AsyncExitStack()
        self.base_url = ""
        self.other_cookie = ""
        """The cookie of another server, such as a load balancer, sent along with the session's."""

    async def __aenter__(self):
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        self._open.push_async_callback(runner.cleanup)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        self.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        await self._open.aclose()

    def paths(self):
        return [received.path for received in self.requests]

    def bodies(self, path):
        return [received.body for received in self.requests if received.path == path]

    async def _handle(self, request):
        session_id = self._session_of(request)
        raw = await request.content.read()
        body = msgspec.json.decode(raw) if raw else None
        self.requests.append(Received(request.raw_path, session_id, body))
        response = await self._answer(request, session_id, body)
        if self.other_cookie:
            response.headers.add("Set-Cookie", f"other={self.other_cookie}; path=/")
        is_lost = self.cookies == "late" and len(self.requests) == 1
        if self.cookies != "none" and not is_lost:
            signed = sign({"session_id": session_id}, self.server_class, len(self.requests))
            name = f"{self.server_class}___counter"
            response.headers.add(
                "Set-Cookie", f"{name}={signed}; path=/; Max-Age=1209600; httponly; samesite=lax"
            )
        return response

    def _session_of(self, request):
        value = request.cookies.get(f"{self.server_class}___counter")
        if value is not None and self.cookies in ("kept", "late"):
            return unsign(value, self.server_class)["session_id"]
        self.num_sessions += 1
        return f"session-{self.num_sessions}"

    async def _answer(self, request, session_id, body):
        fault = self.faults.get(request.raw_path)
        if fault == "stall":
            await asyncio.Event().wait()
        if isinstance(fault, int):
            self.faults[request.raw_path] = fault - 1 or None
            request.transport.abort()
            return web.Response()
        if fault is not None:
            status, text = fault
            return web.Response(status=status, body=text, content_type="application/json")
        handler = self.routes().get((request.method, request.path))
        if handler is None:
            return answer({"detail": "Not Found"}, 404)
        if isinstance(body, dict) and (problem := complaint(body)):
            return answer({"detail": [{"type": "value_error", "msg": problem}]}, 422)
        return answer(*handler(self.state[session_id], body))

    def routes(self):
        routes = {
            ("POST", "/seed_session"): self.seed,
            ("POST", "/increment_counter"): self.increment,
            ("POST", "/get_counter_value"): lambda state, _: ({"count": state.get("count", 0)},),
            ("POST", "/verify"): self.verify,
        }
        if self.mode is not None:
            routes["GET", "/reverify_mode"] = lambda *_: (self.mode,)
        return routes

    def seed(self, state, row):
        state.setdefault("count", row.get("initial_count", 0))
        return ({},)

    def increment(self, state, arguments):
        count = arguments.get("count")
        if not isinstance(count, int):
            return {"detail": [{"type": "int_type", "loc": ["body", "count"]}]}, 422
        state["count"] = state.get("count", 0) + count
        return ({"success": True},)

    def verify(self, state, body):
        is_right = state.get("count", 0) == body["expected_count"]
        return ({**body, "reward": float(is_right), "final_count": state.get("count", 0)},)


class GameServer(ResourcesServer):
    """A server of the gymnasium dialect: guess the row's number; the tool `peek` helps.

    `info` is returned by `/reset`, `rewards` by the steps.
    """

    server_class = "GuessingServer"

    def __init__(self, *, info=None, opening="Guess a number.", reward=0.5, **switches):
        super().__init__(**switches)
        self.info = info or {}
        self.opening = opening
        self.reward = reward

    def routes(self):
        return {
            ("POST", "/reset"): self.reset,
            ("POST", "/step"): self.play,
            ("POST", "/close"): lambda *_: ({},),
        }

    def reset(self, state, row):
        state["num_steps"] = 0
        return ({"observation": self.opening, "info": self.info},)

    def play(self, state, body):
        state["num_steps"] += 1
        calls = [i for i in body["response"]["output"] if i["type"] == "function_call"]
        if calls:
            outputs = [{"call_id": c["call_id"], "output": str(body["number"])} for c in calls]
            return ({"reward": 0.0, "info": {"tool_outputs": outputs}},)
        [message] = body["response"]["output"]
        is_right = message["content"][0]["text"] == str(body["number"])
        return (
            {
                "observation": None if is_right else f"Wrong, try {state['num_steps']}.",
                "reward": 1.0 if is_right else self.reward,
                "terminated": is_right,
                "truncated": False,
                "info": {},
            },
        )


def answer(value, status=200):
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type="application/json"
    )


def complaint(body):
    """Return FastAPI's complaint about a row and its response, or an empty string."""
    if "responses_create_params" not in body:
        return ""
    params = body["responses_create_params"]
    if unknown := set(params) - CREATE_PARAMS:
        return f"extra inputs are not permitted: {unknown}"
    if any(name in params and params[name] is None for name in ("tools", "parallel_tool_calls")):
        return "null where none may be"
    for tool in params.get("tools", []):
        if tool["type"] == "function" and not {"name", "parameters", "strict"} <= set(tool):
            return "a function tool lacks a field"
    response = body.get("response")
    if response is None:
        return ""
    if missing := RESPONSE_KEYS - set(response):
        return f"fields required: {missing}"
    if not set(response.get("usage", USAGE_KEYS)) >= USAGE_KEYS:
        return "usage is not that of a response"
    return next(filter(None, map(item_complaint, response["output"])), "")


def item_complaint(item):
    if "type" not in item:
        return "an output item has no type"
    if item["type"] == "message" and item["role"] == "assistant":
        texts = [part for part in item["content"] if part["type"] == "output_text"]
        if "id" not in item or not all("annotations" in part for part in texts):
            return "an output message lacks a field"
    return ""


def sign(session, secret, moment):
    """Sign as Starlette does: base64 of JSON, a time, and a signature, separated by dots."""
    payload = base64.b64encode(json.dumps(session).encode()).decode()
    signature = hashlib.sha256(f"{payload}.{moment}.{secret}".encode()).hexdigest()[:20]
    return f"{payload}.{moment}.{signature}"


def unsign(value, secret):
    payload, moment, _ = value.split(".")
    fields = json.loads(base64.b64decode(payload))
    assert sign(fields, secret, moment) == value, "the cookie came back changed"
    return fields
