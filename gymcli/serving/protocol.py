"""What the bodies of NeMo Gym's resources-server protocol say, as records of ours and back.

Requests and answers are those of no HTTP server: `gymcli.serving.applications` carries them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from gymcli.environment.registry import Found
from gymcli.environment.remote_session import SEED_HEADER
from gymcli.environment.tool import EnvironmentOptions
from gymcli.nemo_gym.rows import read_rollout
from gymcli.rollout.episode import attempt_seed
from gymcli.types import JSON, JSON_ERRORS, JSONObject, Message, Rollout, Score, StopReason, Timing

__all__ = [
    "RequestRefusedError",
    "ServedAnswer",
    "ServedRequest",
    "game_answer",
    "headers_of",
    "json_answer",
    "opened_record",
    "opening_answer",
    "played_messages",
    "verdict",
    "verified_record",
]


class ServedRequest(NamedTuple):
    """A request, as any HTTP server received it."""

    method: str
    path: str
    """Still percent-encoded, without a query."""
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes

    @property
    def segments(self) -> list[str]:
        """The parts of the path, decoded; an encoded slash does not divide it."""
        return [unquote(part) for part in self.path.strip("/").split("/")]

    def cookie(self, name: str) -> str | None:
        """Return the value of a cookie; malformed ones beside it do not matter."""
        for part in self.headers.get("cookie", "").split(";"):
            found, _, value = part.strip().partition("=")
            if found == name:
                return value
        return None

    def json_object(self) -> JSONObject:
        """Return the body.

        Raises:
            RequestRefusedError: It is no JSON object.

        """
        try:
            return msgspec.json.decode(self.body, type=JSONObject)
        except JSON_ERRORS as error:
            raise RequestRefusedError(422, f"the body is not a JSON object: {error}") from error

    def seed(self) -> int | None:
        """Return the seed that a client of gymcli sends; None for any other client.

        Raises:
            RequestRefusedError: It is no number.

        """
        text = self.headers.get(SEED_HEADER.lower())
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise RequestRefusedError(422, f"{SEED_HEADER}: must be a whole number")
        return int(text)


class ServedAnswer(NamedTuple):
    """An answer, for any HTTP server to send."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class RequestRefusedError(Exception):
    """Raised when a request cannot be served; the client is told the text."""

    def __init__(self, status: int, text: str, *, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after
        """Seconds after which a retry may succeed."""

    def answer(self) -> ServedAnswer:
        """Return the error as an answer in FastAPI's shape."""
        headers = () if self.retry_after is None else (("Retry-After", str(self.retry_after)),)
        return json_answer({"detail": str(self)}, self.status)._replace(headers=headers)


def headers_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by lower-case name; repeated ones are joined as cookies are."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        name = name.lower()
        headers[name] = f"{headers[name]}; {value}" if name in headers else value
    return headers


def json_answer(value: JSON, status: int = 200) -> ServedAnswer:
    """Return an answer in JSON."""
    return ServedAnswer(status, msgspec.json.encode(value))


_PARAMS = "responses_create_params"

_CUT: tuple[StopReason, ...] = ("length", "content_filter", "max_turns")
"""Stop reasons of an episode that was cut off."""


def opened_record(
    row: JSONObject,
    found: Found,
    options: EnvironmentOptions,
    seed: int | None,
    *,
    is_own: bool,
) -> Rollout:
    """Return the record with which the episode of a row begins.

    Without `seed` it follows from the row's task and its `_ng_rollout_index`, else it is random.
    `is_own` says that no other program writes the conversation.

    Raises:
        RequestRefusedError: It is no row.

    """
    if _PARAMS not in row:
        raise RequestRefusedError(
            422, f'"{_PARAMS}" is missing: the body must be a row of a tasks file'
        )
    rollout = _read({**row, "response": {"output": []}}, found.name)
    if seed is None and "_ng_rollout_index" in row:
        seed = attempt_seed(0, rollout.task_id, rollout.attempt)
    return _of_environment(rollout, found, options, is_own=is_own, seed=seed)


def verified_record(
    body: JSONObject, found: Found, options: EnvironmentOptions, seed: int | None
) -> Rollout:
    """Return the record of a row with its response, without a session.

    Raises:
        RequestRefusedError: It is none.

    """
    if _PARAMS not in body or "response" not in body:
        raise RequestRefusedError(422, f'the body must be a row with "{_PARAMS}" and "response"')
    return _of_environment(_read(body, found.name), found, options, is_own=False, seed=seed)


def played_messages(body: JSONObject) -> Rollout:
    """Return a record of the messages of a response, without a prompt.

    Raises:
        RequestRefusedError: There is none.

    """
    return _read({"response": body.get("response"), _PARAMS: {}}, "")


def opening_answer(messages: Sequence[Message]) -> JSONObject:
    """Return the opening of an environment in the gymnasium dialect."""
    answer = _observed(messages)
    return {**answer, "info": {"supports_explicit_close": True}}


def game_answer(
    messages: Sequence[Message], *, reward: float, stop_reason: StopReason | None
) -> JSONObject:
    """Return the answer to a message in the gymnasium dialect, and whether the episode ended."""
    is_cut = stop_reason in _CUT
    is_over = stop_reason is not None and not is_cut
    return {**_observed(messages), "reward": reward, "terminated": is_over, "truncated": is_cut}


def _observed(messages: Sequence[Message]) -> JSONObject:
    outputs: list[JSON] = [
        {"call_id": message.tool_call_id, "output": message.text}
        for message in messages
        if message.role == "tool"
    ]
    texts = [message.text for message in messages if message.role != "tool"]
    info: JSONObject = {"tool_outputs": outputs} if outputs else {}
    return {"observation": "\n\n".join(texts) or None, "info": info}


def verdict(score: Score, body: JSONObject) -> JSONObject:
    """Return a score as the answer of `/verify`: the row and what the verifier adds to it.

    Keys of an earlier verdict are removed from the row.
    """
    added: JSONObject = {**score.details, **score.metrics}
    answer: JSONObject = {name: value for name, value in body.items() if name not in _VERDICT_KEYS}
    answer.update({name: value for name, value in added.items() if name not in _ROW_KEYS})
    answer["reward"] = score.reward
    if score.components:
        answer["reward_components"] = dict(score.components)
    if score.answer is not None:
        answer["extracted_answer"] = score.answer
    return answer


_ROW_KEYS = (_PARAMS, "response")
"""Keys that no part of a score may replace."""

_VERDICT_KEYS = (
    "reward",
    "reward_components",
    "extracted_answer",
    "mask_sample",
    "_ng_failure_class",
    "_ng_failure_judge_error",
)


def _read(line: JSONObject, env: str) -> Rollout:
    try:
        return read_rollout(line, env=env)
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestRefusedError(422, str(error)) from error


def _of_environment(
    rollout: Rollout,
    found: Found,
    options: EnvironmentOptions,
    *,
    is_own: bool,
    seed: int | None,
) -> Rollout:
    """Return the record with the environment's version, options and seed, and without a score.

    Only a conversation written here or by a client of gymcli has our version: its replay must give
    the same words.
    """
    return msgspec.structs.replace(
        rollout.unscored(),
        env_version=found.environment.version if is_own else "",
        env_options=options.model_dump(mode="json", exclude_defaults=True),
        seed=secrets.randbits(31) if seed is None else seed,
        timing=Timing(started_at=round(time.time(), 3)),
    )
