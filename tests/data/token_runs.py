"""Runs with token ids, written as gymcli records them."""

from pathlib import Path

import msgspec

from gymcli.store.tokens import PlayTokens
from gymcli.types import Message, Tokens
from tests.builders import append, lines, scored, write_run

PROMPT, SAMPLED = [1, 2, 3], [4, 5]
"""Of the first call."""


def tokens(prompt, sampled, **fields):
    """Return the ids of an answer, with -0.5 as the logarithm of each probability."""
    given = {"logprobs": [-0.5] * len(sampled), "source": "vllm", **fields}
    return Tokens(prompt=prompt, sampled=sampled, **given)


ONE = [tokens(PROMPT, SAMPLED)]
TWO = [*ONE, tokens([*PROMPT, *SAMPLED, 6, 7], [8, 9], weight_version="v2")]
"""The second prompt begins with the first call."""
FORKED = [*ONE, tokens([1, 2, 7], [8, 9])]
CHANGED = [*ONE, tokens([*PROMPT, 4, 7], [8, 9])]
"""The last sampled id was tokenised otherwise."""
PARTLY = [ONE[0], None, TWO[1]]
"""The second answer has no ids; the third prompt goes on from the first."""


KINDS = {
    "one sequence": [([1, 2], [3, 4]), ([1, 2, 3, 4, 5], [6])],
    "masked": [([1, 2], [3, 4, 5]), ([1, 2, 3, 9], [6])],
    "forked": [([1, 2], [3, 4]), ([7, 2, 3, 4], [5])],
    "raw": [([1, 2], [3, 4])],
    "without ids": [None, None],
    "partly": [([1, 2], [3]), None, ([1, 2, 3, 4], [5, 6])],
}
"""The prompt and the sample of each call; None: the answer had no ids."""


def played(rollout, answers, **sampling):
    """Return a rollout that names its play, and the calls of the play."""
    play = PlayTokens()
    for answer in answers:
        play.add(rollout, answer, finish_reason="stop", sampling=sampling)
    return msgspec.structs.replace(rollout, play=play.play), play.calls


def write_token_run(path: Path, plays, **records):
    """Write a run whose rollouts have the answers of `plays`; None: no ids were recorded."""
    rollouts, calls = [], []
    for rollout, answers in plays:
        if answers is not None:
            rollout, more = played(rollout, answers, temperature=1.0)
            calls += more
        rollouts.append(rollout)
    run = write_run(path, rollouts=rollouts, **records)
    (run / "tokens.jsonl").write_bytes(lines(*calls))
    return run


def append_kinds(folder: Path, kinds=KINDS, *, env="e", texts=None, **fields) -> Path:
    """Append an attempt of each kind to a run without run.json; the kind is the task's id.

    `texts` has the texts of the answers, by kind; "" each by default. `fields` replaces fields of
    the rollouts.
    """
    folder.mkdir(exist_ok=True)
    for kind, answers in kinds.items():
        messages = []
        for text in texts[kind] if texts else [""] * len(answers):
            messages += [Message(role="user", content="on" if messages else "go")]
            messages += [Message(role="assistant", content=text)]
        ids = [one and tokens(*one, logprob_mode="raw") for one in answers]
        sampling = {"temperature": 0.7} if kind == "raw" else {}
        rollout = scored(kind, env=env, **{"messages": messages, **fields})
        rollout, calls = played(rollout, ids, **sampling)
        append(folder / "tokens.jsonl", *calls)
        append(folder / "rollouts.jsonl", rollout)
    return folder
