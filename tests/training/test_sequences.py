"""Tests of token sequences: laws over random conversations, and that TRL makes the same ones."""

import math
import random
from types import SimpleNamespace

import msgspec
import pytest

from gymcli.errors import RunFileError
from gymcli.store.sequences import FORK_THRESHOLD, sequences
from gymcli.store.tokens import PlayTokens, prompts
from gymcli.types import Rollout, Tokens

SCORED = Rollout(env="e", task_id="t", attempt=0, reward=1.0, stop_reason="done")


def conversation(seed, *, unique=False):
    """Return the prompts, samples and log-probabilities of the calls of one random conversation.

    Prompts continue, re-tokenise the end of the last sample, rewrite or cut the history, or come
    from elsewhere; few different ids, so that ids often agree by chance. `unique`: no sampled id
    occurs anywhere else.
    """
    rng = random.Random(seed)
    fresh = iter(range(1000, 10**9))

    def ids(most, least=0):
        return [rng.randrange(3) for _ in range(rng.randint(least, most))]

    calls, prompt = [], ids(6, 1)
    for _ in range(rng.randint(1, 6)):
        is_long = rng.random() < 0.1
        length = FORK_THRESHOLD + rng.randint(-3, 3) if is_long else rng.randint(1, 8)
        sampled = [next(fresh) if unique else rng.randrange(3) for _ in range(length)]
        calls.append((prompt, sampled, [-rng.random() for _ in sampled]))
        held = prompt + sampled
        kept = {
            "continued": len(held),
            "re-tokenised": len(prompt) + rng.randint(0, length),
            "near the threshold": max(0, len(held) - FORK_THRESHOLD + rng.randint(-1, 1)),
            "rewritten": rng.randint(0, len(prompt)),
        }
        prompt = held[: rng.choice([*kept.values()])] + ids(6) or [7]
    return calls


def recorded(calls):
    play = PlayTokens()
    for prompt, sampled, logprobs in calls:
        tokens = Tokens(prompt=prompt, sampled=sampled, logprobs=logprobs, source="vllm")
        play.add(SCORED, tokens, finish_reason="stop", sampling={})
    return play.calls


def test_sequences_train_only_on_sampled_ids_and_on_each_at_most_once():
    num_long = 0
    for seed in range(300):
        calls = conversation(seed, unique=True)
        found = sequences(SCORED, recorded(calls))
        drawn = {
            token: logprob for _, sampled, logprobs in calls
            for token, logprob in zip(sampled, logprobs, strict=True)
        }  # fmt: skip
        trained = []
        for one in found:
            assert len(one.input_ids) == len(one.loss_mask) == len(one.logprobs)
            assert one.loss_mask[: one.prompt_length] == [0] * one.prompt_length
            places = zip(one.input_ids, one.loss_mask, one.logprobs, strict=True)
            for token, mask, logprob in places:
                assert logprob == (drawn[token] if mask else 0.0)
                trained += [token] * mask
            # The engine saw exactly these ids: its last prompt, and what it then sampled.
            prompt, sampled, _ = calls[one.calls[-1]]
            assert one.input_ids == prompt + sampled
        assert len(trained) == len(set(trained))
        # No call is lost, and the last sample of a sequence is always trained on.
        assert [number for one in found for number in one.calls] == [*range(len(calls))]
        assert {token for one in found for token in calls[one.calls[-1]][1]} <= set(trained)
        num_long += len(found) > 1
    assert num_long > 50


def test_prompts_returns_what_was_recorded():
    for seed in range(300):
        calls = conversation(seed)
        lines = [msgspec.json.encode(call) for call in recorded(calls)]
        read = [msgspec.json.decode(line, type=type(recorded(calls)[0])) for line in lines]
        assert prompts(read) == [prompt for prompt, _, _ in calls]


def test_a_conversation_takes_space_in_proportion_to_its_length():
    """Also where calls have problems; what is stored of a prompt is what is new in it."""
    calls, prompt = [], [1] * 50
    for number in range(100):
        logprobs = [0.5, -0.1] if number % 3 == 1 else [-0.1, -0.1]
        calls.append((prompt, [2, 2], logprobs))
        prompt = [*prompt, 2, 2, 3, 3]
    found = recorded(calls)
    # Samples of calls with problems are stored twice, as what the next prompt adds.
    assert sum(len(call.added) + len(call.sampled) for call in found) <= len(prompt) + 2 * 33
    assert sum(bool(call.problem) for call in found) == 33
    [one] = sequences(SCORED, found)
    assert len(one.input_ids) == len(prompt) - 2
    assert sum(one.loss_mask) == 2 * 67


def test_attempts_without_a_score_and_damaged_calls_give_no_sequence():
    calls = recorded([([1], [2], [-0.1]), ([1, 2, 3], [4], [-0.2])])
    assert sequences(SCORED.unscored(), calls) == []
    refused = msgspec.structs.replace(SCORED, stop_reason="refusal")
    assert [one.is_cut for one in sequences(refused, calls)] == [True]
    calls[1].num_shared = 9
    for function in (prompts, lambda damaged: sequences(SCORED, damaged)):
        with pytest.raises(
            RunFileError, match=r"task t \(e\) is damaged: call 1 shares 9 ids, .* has only 2"
        ):
            function(calls)


def damaged(call, rng):
    """Return a call with one thing changed, which may be wrong then."""
    prompt, sampled, logprobs = (list(values) for values in call)
    values = rng.choice([prompt, sampled, logprobs])
    change = rng.choice(["none", "cleared", "longer", "shorter", "replaced"])
    if change == "cleared":
        values.clear()
    elif change == "shorter":
        values.pop()
    elif change == "longer":
        values.append(0)
    elif change == "replaced":
        wrong = [math.nan, math.inf, -math.inf, 0.5, -0.0] if values is logprobs else [-1, 0]
        values[rng.randrange(len(values))] = rng.choice(wrong)
    return prompt, sampled, logprobs


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_openenv_takes_the_calls_and_sequences_that_are_trained():
    checks = pytest.importorskip(
        "openenv.core.harness.capture.validate", reason="needs OpenEnv 0.10"
    )
    num_refused = 0
    for seed in range(1000):
        rng = random.Random(seed)
        calls = [damaged(call, rng) for call in conversation(seed)]
        lines = recorded(calls)
        for line, call in zip(lines, calls, strict=True):
            # OpenEnv only warns of a call without a sample, which trains nothing.
            is_taken = checks.check_turn(*call).ok and bool(call[1])
            assert (not line.problem) == is_taken, (line, call)
            num_refused += not is_taken
        for one in sequences(SCORED, lines):
            found = SimpleNamespace(**msgspec.structs.asdict(one), prompt_len=one.prompt_length)
            assert checks.check_sequence(found).ok
    assert num_refused > 300


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_sequences_are_those_of_trl():
    worker = pytest.importorskip(
        "trl.experimental.async_grpo.async_rollout_worker", reason="needs torch and TRL 1.16"
    )
    kinds = {"clean": 0.0, "realign": 0.0, "fork": 0.0}
    for seed in range(5000):
        calls = conversation(seed)
        turns = [worker.TurnRecord(*call) for call in calls]
        theirs, tally = worker._chain_to_sequences(turns, "r", FORK_THRESHOLD)
        ours = sequences(SCORED, recorded(calls))
        assert [(one.input_ids, one.loss_mask, one.logprobs) for one in ours] == [
            (one.input_ids, one.completion_mask, one.old_log_probs) for one in theirs
        ]
        kinds = {kind: num + tally[kind] for kind, num in kinds.items()}
    assert min(kinds.values()) > 1000, kinds
