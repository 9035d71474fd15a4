"""Tests of drift: what rendering a conversation again would have changed."""

import msgspec
import pytest

from gymcli.mock import MockServer, TokenSampler
from gymcli.mock.process import serving
from gymcli.mock.tokenizer import END, encode, render
from gymcli.types import Message
from tests.commands.running import gym
from tests.training.token_runs import write_token_run

ANSWERS = ("abcd", "ef")


def asked(*answers):
    """Return the ids of the prompt after these answers."""
    messages = [Message(role="user", content="go")]
    for answer in answers:
        messages.append(Message(role="assistant", content=answer))
        messages.append(Message(role="user", content="on"))
    return encode(render(messages))


def letters(text):
    """Return the ids that an engine may sample for a text, though no tokenizer makes them."""
    return [*text.encode(), END]


def pairs(text):
    return [*encode(text), END]


# The engine goes on from its own ids, which are those of the answer before its end.
CONTINUED = asked() + letters("abcd") + asked("abcd")[len(asked()) + len(pairs("abcd")) :]
KINDS = {
    "same": [(asked(), pairs("abcd")), (asked("abcd"), pairs("ef"))],
    "re-tokenised": [(asked(), letters("abcd")), (asked("abcd"), pairs("ef"))],
    "continued": [(asked(), letters("abcd")), (CONTINUED, pairs("ef"))],
    "cut": [(asked(), encode("ab")), (asked("ab"), letters("ef"))],
    "without ids": [None, None],
}


@pytest.fixture
def run(tmp_path):
    texts = dict.fromkeys(KINDS, ANSWERS) | {"cut": ("ab", "ef")}
    return write_token_run(tmp_path / "run", KINDS, texts=texts)


@pytest.mark.parametrize("source", ["vllm", "llamacpp"])
def test_metrics_says_what_a_rendering_by_a_server_changes(run, source):
    with serving(MockServer(sampler=TokenSampler(source))) as server:
        done = gym("metrics", run, "--tokenizer", server.base_url, "--json")
        assert done.exit_code == 0, done.stderr
        found = msgspec.json.decode(done.stdout)["tokens"]
        assert found["drift"] == {
            "num_calls": 8,
            # One re-tokenised, both continued (the second for its prompt), the last of the cut one.
            "num_changed_calls": 4,
            "num_sequences": 4,
            "num_changed_sequences": 3,
            "num_sampled": 3 + 2 + 5 + 2 + 5 + 2 + 1 + 3,
            "num_changed_sampled": 5 + 5 + 2 + 3,
            "num_unrendered": 0,
        }
        text = " ".join(gym("metrics", run, "--tokenizer", server.base_url).stdout.split())
        assert (
            "a re-rendering changes 15 of 23 sampled ids, in 4 of 8 calls and 3 of 4 sequences"
        ) in text


def test_metrics_says_why_a_tokenizer_cannot_be_used(run, tmp_path):
    with serving(MockServer()) as server:
        url = server.base_url
        refused = gym("metrics", run, "--tokenizer", url)
        assert refused.exit_code == 2
        assert f"{url}: renders no conversation, neither as a server of llama.cpp" in refused.stderr
    failed = gym("metrics", run, "--tokenizer", url)
    assert failed.exit_code == 4, failed.stderr
    for tokenizer, reason in {
        str(tmp_path / "nothing"): "is no folder; name the folder of a model, the URL",
        "http://": "the base URL",
    }.items():
        done = gym("metrics", run, "--tokenizer", tokenizer)
        assert done.exit_code == 2
        assert reason in " ".join(done.stderr.split())
    (run / "tokens.jsonl").unlink()
    with serving(MockServer(sampler=TokenSampler("vllm"))) as server:
        done = gym("metrics", run, "--tokenizer", server.base_url)
    assert done.exit_code == 2
    assert "record them with gym collect --record-tokens" in " ".join(done.stderr.split())
