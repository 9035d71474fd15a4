"""Runs with token ids, written as gymcli records them."""

from pathlib import Path

import msgspec

from gymcli.store.tokens import PlayTokens
from gymcli.types import Tokens
from tests.store.indexed_runs import lines, write_run

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


def write_token_run(path: Path, plays, **records):
    """Write a run whose rollouts have the answers of `plays`; None: no ids were recorded."""
    rollouts, calls = [], []
    for rollout, answers in plays:
        if answers is not None:
            play = PlayTokens()
            for answer in answers:
                play.add(rollout, answer, finish_reason="stop", sampling={"temperature": 1.0})
            calls += play.calls
            rollout = msgspec.structs.replace(rollout, play=play.play)
        rollouts.append(rollout)
    run = write_run(path, rollouts=rollouts, **records)
    (run / "tokens.jsonl").write_bytes(lines(*calls))
    return run
