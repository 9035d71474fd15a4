"""Generates requests with the steps done so far, and the next step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from gymcli import JSONObject
from gymcli.envs import load_generator

if TYPE_CHECKING:
    from datasets.xlam_fc.generate import Difficulty, Lookup, Wish

xlam_fc = load_generator("xlam_fc")

Kind = Literal["call", "batch", "report", "not_found"]


class Errand(NamedTuple):
    """Something to look up, its id, and what to do with it afterwards."""

    lookup: Lookup
    find: Wish
    found_id: str
    use: Wish


class Next(NamedTuple):
    """The expert's action after a number of steps."""

    num_done: int
    action: JSONObject


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield tasks; harder ones have more errands and a longer history."""
    seen: set[bytes] = set()
    for number in range(num):
        difficulty, kind = (
            xlam_fc.DIFFICULTIES[number % len(xlam_fc.DIFFICULTIES)],
            KINDS[number % len(KINDS)],
        )
        row = _row(rng, difficulty, kind)
        while (said := msgspec.json.encode(row["messages"])) in seen:
            row = _row(rng, difficulty, kind)
        seen.add(said)
        yield {"id": f"step-{number}", "difficulty": difficulty, **row}


def _row(rng: Random, difficulty: Difficulty, kind: Kind) -> JSONObject:
    num_errands = NUM_ERRANDS[difficulty] + (kind == "batch")  # a batch has at least two calls
    errands = [_errand(rng, lookup) for lookup in rng.sample(xlam_fc.LOOKUPS, num_errands)]
    steps = [*(errand.find for errand in errands), *(errand.use for errand in errands)]
    following = _next(rng, errands, steps, kind)
    *first, last = [one.words for one in steps]
    request = f"{'; '.join(first)}; then {last}."
    return {
        "messages": [
            {"role": "system", "content": TOGETHER if kind == "batch" else IN_TURN},
            {"role": "user", "content": f"{request[0].upper()}{request[1:]}"},
            *_history(errands, steps[: following.num_done], kind),
        ],
        "tools": xlam_fc.shown_tools(
            rng,
            [one.action for one in steps],
            num_others=NUM_OTHERS[difficulty],
            has_siblings=difficulty == "hard",
        ),
        "expected_action": following.action,
    }


def _errand(rng: Random, lookup: Lookup) -> Errand:
    found_id = str(lookup.use.parameters[lookup.id_name].drawn(rng))
    use = xlam_fc.drawn(rng, lookup.use, known_id=found_id)
    return Errand(lookup, xlam_fc.drawn(rng, lookup.find), found_id, use)


def _next(rng: Random, errands: Sequence[Errand], steps: Sequence[Wish], kind: Kind) -> Next:
    num_finds = len(errands)
    if kind == "call":
        # The last look-up or a later step; with a single errand, only its use is left.
        num_done = rng.randrange(max(1, num_finds - 1), len(steps))
        return Next(num_done, _call(steps[num_done]))
    if kind == "batch":
        calls = [_call(errand.use) for errand in errands]
        return Next(num_finds, {"type": "function_call_batch", "calls": calls})
    if kind == "report":
        done = "; ".join(errand.use.words for errand in errands)
        return Next(len(steps), {"type": "message", "content": f"All is done: {done}."})
    missing = errands[-1].find.words
    return Next(num_finds, {"type": "message", "content": f"I tried to {missing}: it is unknown."})


def _call(wish: Wish) -> JSONObject:
    arguments = msgspec.json.encode(wish.arguments).decode()
    return {"type": "function_call", "name": wish.action.name, "arguments": arguments}


def _history(errands: Sequence[Errand], done: Sequence[Wish], kind: Kind) -> list[JSONObject]:
    """Return the messages so far: one call per message, or all look-ups in one."""
    results = [_found(errand) for errand in errands]
    if kind == "not_found":
        results[-1] = {"error": "nothing found"}
    confirmation: JSONObject = {"status": "done"}
    results += [confirmation] * (len(done) - len(results))
    if kind == "batch":
        return _turn(done, results, 0)
    turns = [_turn([one], [results[place]], place) for place, one in enumerate(done)]
    return [message for turn in turns for message in turn]


def _found(errand: Errand) -> JSONObject:
    return {errand.lookup.id_name: errand.found_id, **errand.find.arguments}


def _turn(wishes: Sequence[Wish], results: Sequence[JSONObject], first: int) -> list[JSONObject]:
    """Return an assistant message with its calls, and a result for each."""
    ids = [f"step_{first + place}" for place in range(len(wishes))]
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {
                "name": one.action.name,
                "arguments": msgspec.json.encode(one.arguments).decode(),
            },
        }
        for call_id, one in zip(ids, wishes, strict=True)
    ]
    reasoning = f"What comes now: {', '.join(one.words for one in wishes)}."
    answers: list[JSONObject] = [
        {"role": "tool", "tool_call_id": call_id, "content": msgspec.json.encode(result).decode()}
        for call_id, result in zip(ids, results, strict=True)
    ]
    return [{"role": "assistant", "reasoning": reasoning, "tool_calls": calls}, *answers]


KINDS: tuple[Kind, ...] = (
    "call",
    "batch",
    "call",
    "report",
    "call",
    "call",
    "batch",
    "call",
    "not_found",
    "call",
)
"""Kinds that end with a text are never adjacent, since any text is right for both."""
NUM_ERRANDS: dict[Difficulty, int] = {"easy": 1, "medium": 2, "hard": 3}
NUM_OTHERS: dict[Difficulty, int] = {"easy": 2, "medium": 4, "hard": 8}

RULES = (
    "Take names, words and numbers as they stand in the request, ids as a tool gave them, and "
    "leave out arguments that nobody asked for. Where nothing is found, call no further tool and "
    "say so. Once all is done, say that."
)
IN_TURN = f"You run errands with tools, one call in a message, in the order asked for. {RULES}"
TOGETHER = (
    "You run errands with tools. Calls that need nothing of each other go into one message. "
    f"{RULES}"
)
