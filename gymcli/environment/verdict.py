"""Asks `/verify` of a resources server, and reads its answer: a failure, or a score.

Format: NVIDIA NeMo Gym 0.5 (Apache-2.0): `reward`, where there are several `reward_components`,
and any further fields; the numbers among those are what its own tools average.
"""

from __future__ import annotations

import msgspec

from gymcli.environment.remote_served import OWN_KEY, Verified
from gymcli.environment.session import ServerSession
from gymcli.errors import VerifierError
from gymcli.nemo_gym.wire import response_of
from gymcli.types import JSON, JSONObject, Rollout, Score

__all__ = ["MAX_DETAILS", "asked_verdict", "check_verdict", "own_fields", "score_of"]

MAX_DETAILS = 10_000
"""Bytes of JSON that a score takes over as details; the record's `final_state` has all of it."""

_ECHOED = ("responses_create_params", "response")
_SCORE_FIELDS = ("reward", "reward_components", "extracted_answer")
_MAX_WORDS = 200


async def asked_verdict(
    session: ServerSession, rollout: Rollout, row: JSONObject, *, seconds: float
) -> JSONObject:
    """Ask `/verify` and give what its answer says beyond the row.

    Raises:
        VerifierError: There is no answer within `seconds`, or it is no verdict.

    """
    response = response_of(rollout, row, rollout.responses, rollout.usage)
    reply = await session.post(
        "verify",
        {**row, "response": response},
        seconds=seconds,
        error_class=VerifierError,
    )
    answer = reply.json_object(VerifierError)
    check_verdict(answer, reply.place)
    return own_fields(answer, row)


def check_verdict(answer: JSONObject, place: str) -> None:
    """See that an answer with status 200 is a verdict.

    Raises:
        VerifierError: The server's own verifier failed, which it says beside a reward that says
            nothing; or there is no reward.

    """
    failure = answer.get("_ng_failure_class")
    if failure is not None:
        words = _words(answer.get("_ng_failure_judge_error"))
        raise VerifierError(f"{place}: the server's verifier failed: {failure}{words}")
    if answer.get("mask_sample") is True:
        kind = answer.get("failure_kind") or "no kind given"
        words = _words(answer.get("failure_reason"))
        raise VerifierError(
            f"{place}: the server says that its reward does not count: {kind}{words}"
        )
    reward = answer.get("reward")
    if not isinstance(reward, int | float):
        raise VerifierError(f'{place}: the answer has no number "reward" ({reward!r})')


def own_fields(answer: JSONObject, row: JSONObject) -> JSONObject:
    """Give what an answer adds to the row that it echoes; nulls are left out."""
    return {
        name: value
        for name, value in answer.items()
        if name in _SCORE_FIELDS
        or not (name in _ECHOED or value is None or (name in row and row[name] == value))
    }


def score_of(answer: JSONObject) -> Score:
    """Give the score that a checked verdict means.

    That of a server of gymcli has the score as it is. Of others the numbers of the top level are
    metrics, texts and objects are details.
    """
    if OWN_KEY in answer:
        return msgspec.convert(answer[OWN_KEY], type=Verified).score
    reward, extracted = answer["reward"], answer.get("extracted_answer")
    assert isinstance(reward, int | float)
    components = _numbers(answer.get("reward_components"))
    rest = {n: v for n, v in answer.items() if n not in (*_SCORE_FIELDS, "mask_sample")}
    metrics = {n: v for n, v in _numbers(rest).items() if n not in components}
    details = {n: v for n, v in rest.items() if not isinstance(v, int | float)}
    if extracted is not None and not isinstance(extracted, str):
        details["extracted_answer"] = extracted
    return Score(
        float(reward),
        components=components,
        metrics=metrics,
        answer=extracted if isinstance(extracted, str) else None,
        details=_bounded(details),
    )


def _numbers(fields: JSON) -> dict[str, float]:
    """Give the numbers and truth values among fields."""
    if not isinstance(fields, dict):
        return {}
    return {name: float(v) for name, v in fields.items() if isinstance(v, int | float)}


def _bounded(details: JSONObject) -> JSONObject:
    """Give the details that fit, in their order, and the names of those that do not."""
    kept: JSONObject = {}
    left_out = []
    num_bytes = 0
    for name, value in details.items():
        size = len(msgspec.json.encode(value))
        if num_bytes + size > MAX_DETAILS:
            left_out.append(name)
            continue
        num_bytes += size
        kept[name] = value
    return {**kept, "left_out": left_out} if left_out else kept


def _words(value: JSON) -> str:
    """Give the first words of a text, in parentheses."""
    text = " ".join(str(value or "").split())[:_MAX_WORDS]
    return f" ({text})" if text else ""
