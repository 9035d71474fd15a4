"""Writes runs with recorded token ids, as `gym collect --record-tokens` does."""

from pathlib import Path

import msgspec

from gymcli.store.tokens import PlayTokens
from gymcli.types import SCHEMA_VERSION, Message, Rollout, Tokens

LOGPROB = -0.25

KINDS = {
    "one sequence": [([1, 2], [3, 4]), ([1, 2, 3, 4, 5], [6])],
    "masked": [([1, 2], [3, 4, 5]), ([1, 2, 3, 9], [6])],
    "forked": [([1, 2], [3, 4]), ([7, 2, 3, 4], [5])],
    "raw": [([1, 2], [3, 4])],
    "without ids": [None, None],
    "partly": [([1, 2], [3]), None, ([1, 2, 3, 4], [5, 6])],
}
"""The prompt and the sample of each call; None: the answer had no ids."""


def write_token_run(folder: Path, kinds=KINDS, *, env="e", texts=None, **fields) -> Path:
    """Append an attempt of each kind, a task each, to a run; the kind is the task's id.

    `texts` has the texts of the answers, by kind; "" each by default. `fields` replaces fields of
    the rollouts.
    """
    folder.mkdir(exist_ok=True)
    encoder = msgspec.json.Encoder()
    with (
        (folder / "tokens.jsonl").open("ab") as tokens_file,
        (folder / "rollouts.jsonl").open("ab") as rollouts_file,
    ):
        for kind, calls in kinds.items():
            messages = [Message(role="user", content="go")]
            for number in range(len(calls)):
                text = "" if texts is None else texts[kind][number]
                messages += [
                    Message(role="assistant", content=text),
                    Message(role="user", content="on"),
                ]
            play = PlayTokens()
            given = {"messages": messages[:-1], "num_prompt_messages": 1, **fields}
            key = {"schema_version": SCHEMA_VERSION, "env": env, "task_id": kind, "attempt": 0}
            rollout = Rollout(**key, **given, play=play.play, reward=1.0, stop_reason="done")
            sampling = {"temperature": 0.7} if kind == "raw" else {}
            for call in calls:
                tokens = None
                if call is not None:
                    prompt, sampled = call
                    logprobs = [LOGPROB] * len(sampled)
                    tokens = Tokens(
                        prompt=prompt,
                        sampled=sampled,
                        logprobs=logprobs,
                        source="vllm",
                        logprob_mode="raw",
                    )
                play.add(rollout, tokens, finish_reason="stop", sampling=sampling)
            tokens_file.writelines(encoder.encode(line) + b"\n" for line in play.calls)
            rollouts_file.write(encoder.encode(rollout) + b"\n")
    return folder
