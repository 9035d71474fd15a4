"""Tests of the mock's token ids: the tokenizer, and the shapes in which servers report them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import UsageError
from gymcli.mock import MockAnswer, TokenSampler
from gymcli.mock.tokenizer import decode, encode
from tests.mock.talking import TOOL, post, talk, talking

SOURCES = ("vllm", "token_id", "llamacpp", "nemo_gym")
ASKED = {"logprobs": True, "return_token_ids": True, "return_tokens_as_token_ids": True}
QUESTION = {"role": "user", "content": "2 + 3?\n\nÄ"}
TOOLS = [{"type": "function", "function": TOOL}]
CALLING = MockAnswer(text="I add.", tool_calls=[("add", {"a": 2, "b": 3})])


@given(st.text(), st.text())
def test_ids_are_the_text_and_go_on_after_a_line(text, more):
    assert decode(encode(text, parse_special=False)) == text
    assert decode(encode(text + more)) == (text + more).replace("<|im_start|>", "").replace(
        "<|im_end|>", ""
    )
    assert encode(f"{text}\n{more}") == encode(f"{text}\n") + encode(more)


def sampler(source, **options):
    return TokenSampler.parse(source, **{"drift": 0.0, "weight_version": "", "seed": 0, **options})


async def converse(server, session, *, stream, sends_back=False):
    """Ask twice in one conversation with a tool and return the answers, with joined streams."""
    messages, answers = [QUESTION], []
    for _ in range(2):
        body = {"model": "m", "messages": messages, "tools": TOOLS, "stream": stream, **ASKED}
        async with session.post(server.base_url + "/chat/completions", json=body) as response:
            text = await response.text()
        if stream:
            events = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
            answers.append(joined([json.loads(event) for event in events]))
        else:
            answers.append(json.loads(text))
        message = answers[-1]["choices"][0]["message"]
        sent = {"role": "assistant", "content": "I add.", "tool_calls": message["tool_calls"]}
        if sends_back:
            sent |= {name: message[name] for name in message if name.endswith("_ids")}
        messages = [*messages, sent, {"role": "tool", "content": "5", "tool_call_id": "call_0_0"}]
    return answers


def joined(chunks):
    """Join the chunks of a stream of one choice as clients of vLLM do."""
    message, ids, logprobs = {"tool_calls": []}, [], []
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            ids += choice.get("token_ids", [])
            logprobs += (choice["logprobs"] or {}).get("content", [])
            for call in delta.pop("tool_calls", []):
                if "id" in call:
                    message["tool_calls"].append(call)
                else:
                    function = message["tool_calls"][-1]["function"]
                    function["arguments"] += call["function"]["arguments"]
            message |= delta
    choice = {"message": message, "token_ids": ids, "logprobs": {"content": logprobs}}
    return {**chunks[0], "choices": [choice]}


def reported(source, answer):
    """Return the sampled ids and their log-probabilities, where clients of this server look."""
    choice = answer["choices"][0]
    if source == "nemo_gym":
        message = choice["message"]
        return message["generation_token_ids"], message["generation_log_probs"]
    content = choice["logprobs"]["content"]
    ids = {
        "vllm": lambda: choice["token_ids"],
        "token_id": lambda: [int(entry["token"].removeprefix("token_id:")) for entry in content],
        "llamacpp": lambda: [entry["id"] for entry in content],
    }[source]()
    return ids, [entry["logprob"] for entry in content]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("source", SOURCES)
async def test_servers_report_what_was_sampled(source, stream):
    async with talking(lambda _: CALLING, sampler=sampler(source, weight_version="7")) as (
        server,
        session,
    ):
        answers = await converse(server, session, stream=stream)
        first, second = server.tokens
        # llama.cpp's streams leave out the end of the message.
        end = -1 if stream and source == "llamacpp" else None
        for answer, tokens in zip(answers, server.tokens, strict=True):
            assert reported(source, answer) == (tokens.sampled[:end], tokens.logprobs[:end])
            assert all(value < 0 for value in tokens.logprobs)
            assert answer["weight_version"] == "7"
        assert decode(first.sampled) == (
            'I add.\n<tool_call>\n{"name": "add", "arguments": {"a":2,"b":3}}\n</tool_call>'
        )
        # Rendered again, and still the same beginning.
        held = first.prompt + first.sampled
        assert second.prompt[: len(held)] == held
        answer = answers[0]
        tokens = first
    where = {"vllm": answer, "nemo_gym": answer["choices"][0]["message"]}.get(source, {})
    assert where.get("prompt_token_ids") == (tokens.prompt if where else None)


def test_prompts_come_from_the_root_of_the_server():
    asked = {"messages": [QUESTION], "tools": TOOLS}

    async def run(server, session):
        await post(session, server, "/chat/completions", asked)
        found = await post(session, server, "/../tokenize", asked)
        return server.tokens[0].prompt, found

    prompt, (status, found) = talk(run, sampler=sampler("token_id"))
    assert (status, found["tokens"], found["count"]) == (200, prompt, len(prompt))

    async def run_llama(server, session):
        _, template = await post(session, server, "/../apply-template", asked)
        text = {"content": template["prompt"], "add_special": False, "parse_special": True}
        return await post(session, server, "/../tokenize", text)

    assert talk(run_llama, sampler=sampler("llamacpp")) == (200, {"tokens": prompt})
    for source in (None, "nemo_gym"):
        status, _ = talk(
            lambda server, session: post(session, server, "/../tokenize", asked),
            sampler=sampler(source),
        )
        assert status == 404


def test_drift_changes_the_next_prompt_unless_ids_are_sent_back():
    for sends_back in (False, True):

        async def run(server, session, sends_back=sends_back):
            await converse(server, session, stream=False, sends_back=sends_back)
            return server.tokens

        first, second = talk(run, lambda _: CALLING, sampler=sampler("nemo_gym", drift=0.5))
        held = first.prompt + first.sampled
        assert (second.prompt[: len(held)] == held) == sends_back
        assert decode(second.prompt).startswith(decode(held))


async def test_responses_carry_ids_on_the_last_item():
    async with talking(lambda _: CALLING, sampler=sampler("nemo_gym", drift=0.5)) as (
        server,
        session,
    ):
        body = {"input": "2 + 3?", "tools": []}
        _, first = await post(session, server, "/responses", body)
        answer = {"type": "function_call_output", "call_id": "call_0_0", "output": "5"}
        items = [{"role": "user", "content": "2 + 3?"}, *first["output"], answer]
        await post(session, server, "/responses", {**body, "input": items})
        output = first["output"]
        (first, second) = server.tokens
    assert "generation_token_ids" not in output[0]
    assert output[1]["generation_token_ids"] == first.sampled
    held = first.prompt + first.sampled
    assert second.prompt[: len(held)] == held


def test_ids_are_sent_only_if_asked():
    async def run(server, session):
        plain = {"messages": [QUESTION]}
        _, without = await post(session, server, "/chat/completions", plain)
        _, null = await post(
            session, server, "/chat/completions", {**plain, "logprobs": True, "top_logprobs": None}
        )
        return without, null

    for answer in talk(run, sampler=sampler("vllm")):
        assert "prompt_token_ids" not in answer
        assert "token_ids" not in answer["choices"][0]
        assert answer["choices"][0]["logprobs"] is None


def test_equal_requests_sample_other_log_probabilities():
    one, other = (sampler("vllm", seed=seed) for seed in (1, 1))
    made = [one.sample([1], "text") for _ in range(2)]
    assert made[0].logprobs != made[1].logprobs
    assert made == [other.sample([1], "text") for _ in range(2)]
    assert made[0].sampled[:-1] == one.sample([1], "text", is_cut=True).sampled


def test_options_say_what_they_need():
    with pytest.raises(UsageError, match='did you mean "vllm"'):
        sampler("vlm")
    with pytest.raises(UsageError, match="--token-drift: needs --tokens"):
        sampler(None, drift=0.1)
