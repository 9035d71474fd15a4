"""Lines of tokens.jsonl: what marks a call as not on-policy, and what the file reserves."""

from pathlib import Path

import pytest

from gymcli.store.run_directory import RunDirectory
from gymcli.store.tokens import PlayTokens
from gymcli.types import Rollout, Tokens


@pytest.mark.parametrize(
    ("mode", "sampling", "reason"),
    [
        ("raw", {}, ""),
        ("raw", {"temperature": 1, "top_p": 1, "top_k": -1, "response_format": None}, ""),
        ("raw", {"response_format": {"type": "text"}}, ""),
        ("raw", {"temperature": 0.7}, "raw log-probabilities at temperature 0.7"),
        ("unknown", {"temperature": 0.7}, "unknown log-probabilities at temperature 0.7"),
        ("processed", {"temperature": 0.7, "grammar": "root ::= [0-9]+"}, ""),
        ("processed", {"top_p": 0.9}, "top_p = 0.9"),
        (
            "raw",
            {"response_format": {"type": "json_object"}},
            "raw log-probabilities of an answer that response_format constrains",
        ),
        (
            "unknown",
            {"logit_bias": {"5": -100}},
            "unknown log-probabilities of an answer that logit_bias constrains",
        ),
    ],
)
def test_a_call_is_on_policy_if_its_log_probabilities_are_of_what_was_sampled(
    mode, sampling, reason
):
    play = PlayTokens()
    tokens = Tokens(prompt=[1], sampled=[2], logprobs=[-0.5], source="vllm", logprob_mode=mode)
    play.add(Rollout(), tokens, finish_reason="stop", sampling=sampling)
    assert play.calls[0].off_policy == reason


def test_token_ids_take_descriptors_only_where_they_are_recorded(tmp_path):
    def num_open():
        return sum(1 for _ in Path("/dev/fd").iterdir())

    def num_reserved(**options):
        directory = RunDirectory(tmp_path)
        before = num_open()
        directory.reserve(**options)
        try:
            return num_open() - before
        finally:
            directory.close()

    # Of the file and of its folder.
    assert num_reserved(records_tokens=True) == num_reserved(records_tokens=False) + 2
