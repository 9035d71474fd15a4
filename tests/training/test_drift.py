"""Tests of drift: what rendering a conversation again would have changed."""

import msgspec
import pytest

from gymcli.mock import MockServer, TokenSampler
from gymcli.mock.process import serving
from gymcli.mock.tokenizer import END, encode, render
from gymcli.types import FunctionCall, Message, ToolCall
from tests.builders import gym
from tests.data.token_runs import append_kinds

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
    said = [Message(role="user", content="go"), Message(role="assistant", content="by a script")]
    append_kinds(tmp_path / "run", {"not comparable": KINDS["same"]}, messages=said)
    return append_kinds(tmp_path / "run", KINDS, texts=texts)


@pytest.mark.parametrize("source", ["vllm", "llamacpp"])
def test_metrics_says_what_a_rendering_by_a_server_changes(run, source):
    with serving(MockServer(sampler=TokenSampler(source))) as server:
        done = gym("metrics", run, "--tokenizer", server.base_url, "--json", exit_code=0)
        found = msgspec.json.decode(done.stdout)["tokens"]
        assert found["drift"] == {
            "num_calls": 8,
            # One re-tokenised, both continued (the second for its prompt), the last of the cut one.
            "num_changed_calls": 4,
            "num_sequences": 4,
            "num_changed_sequences": 3,
            "num_sampled": 3 + 2 + 5 + 2 + 5 + 2 + 1 + 3,
            "num_changed_sampled": 5 + 5 + 2 + 3,
            "num_unrendered": 1,
        }
        text = " ".join(gym("metrics", run, "--tokenizer", server.base_url).stdout.split())
        assert (
            "a re-rendering changes 15 of 23 sampled ids, in 4 of 8 calls and 3 of 4 sequences; "
            "not comparable: 1 attempt"
        ) in text


def test_metrics_says_why_a_tokenizer_cannot_be_used(run, tmp_path):
    with serving(MockServer()) as server:
        url = server.base_url
        refused = gym("metrics", run, "--tokenizer", url, exit_code=2)
        assert f"{url}: renders no conversation, neither as a server of llama.cpp" in refused.stderr
    gym("metrics", run, "--tokenizer", url, exit_code=4)
    for tokenizer, reason in {
        str(tmp_path / "nothing"): "is not a folder; name the folder of a model, the URL",
        "http://": "the base URL",
    }.items():
        done = gym("metrics", run, "--tokenizer", tokenizer, exit_code=2)
        assert reason in " ".join(done.stderr.split())
    (run / "tokens.jsonl").unlink()
    with serving(MockServer(sampler=TokenSampler("vllm"))) as server:
        done = gym("metrics", run, "--tokenizer", server.base_url)
    assert done.exit_code == 2
    assert "record them with gym collect --record-tokens" in " ".join(done.stderr.split())


TEMPLATE = """\
{% for tool in tools or [] %}{{ tool.function.name }}|{% endfor %}\
{% for m in messages %}{{ m.role[0] }}{{ m.reasoning_content }}{{ m.content }}\
{% for c in m.tool_calls or [] %}{{ c.function.arguments.n }}{% endfor %};{% endfor %}\
{% if add_generation_prompt %}a{% endif %}"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_metrics_renders_with_the_tokenizer_of_a_folder(tmp_path):
    """The chat template sees tools, reasoning, and arguments as objects."""
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    from tokenizers import Tokenizer, decoders, models  # it comes with it

    letters = sorted(set("abcdefghijklmnopqrstuvwxyz0123456789|; "))
    vocabulary = {letter: number for number, letter in enumerate([*letters, "ok"])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[("o", "k")]))
    backend.decoder = decoders.Fuse()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(tmp_path / "model")

    def ids(text):
        return [vocabulary[letter] for letter in text]

    call = ToolCall(id="1", function=FunctionCall("add", '{"n": 7}'))
    messages = [
        Message(role="user", content="go"),
        Message(role="assistant", content="", reasoning="hm", tool_calls=[call]),
        Message(role="tool", content="8", tool_call_id="1"),
        Message(role="assistant", content="ok"),
    ]
    tools = [{"type": "function", "function": {"name": "add"}}]
    first, second = ids("add|ugo;a"), ids("add|ugo;ahm7;t8;a")
    kinds = {
        "one": [(first, ids("hm7;")), (second, [vocabulary["ok"], *ids(";")])],
        "two": [(first, ids("hm7;")), (second, ids("ok;"))],
    }
    run = append_kinds(tmp_path / "run", kinds, messages=messages, tools=tools)
    done = gym("metrics", run, "--tokenizer", tmp_path / "model", "--json", exit_code=0)
    drift = msgspec.json.decode(done.stdout)["tokens"]["drift"]
    changed = ("num_changed_calls", "num_changed_sequences", "num_changed_sampled")
    assert [drift[name] for name in changed] == [1, 1, 3]
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    damaged = gym("metrics", run, "--tokenizer", tmp_path / "model", exit_code=2)
    assert "cannot be loaded" in damaged.stderr
