"""Tests of records and warnings for unusual answers."""

import logging

import msgspec
import pytest

from gymcli.mock import MockAnswer
from gymcli.mock.behaviours import refusal_of
from gymcli.types import Failure
from tests.builders import add_up, collect_all, gym, lines_of, write_sums


def body_of(message, *, usage=None, **choice):
    """Return an answer with this body."""
    body = {"id": "r-7", "choices": [{"message": message, **choice}], "usage": usage}
    return MockAnswer(body=msgspec.json.encode(body).decode())


NOTHING = {"role": "assistant", "content": None}


@pytest.mark.parametrize(
    "answer",
    [
        MockAnswer(text="It is", finish_reason="abort"),
        MockAnswer(text="It is", finish_reason="error"),
        MockAnswer(text="It is", finish_reason="cancelled"),
        MockAnswer(finish_reason="insufficient_system_resource"),
        body_of({}, finish_reason="stop", usage={"completion_tokens": 3}),
        body_of(NOTHING, finish_reason=None, usage={"completion_tokens": 0}),
    ],
)
def test_an_invalid_answer_is_a_failure_of_the_model(tmp_path, answer):
    tasks = write_sums(tmp_path / "t.jsonl", 2)
    records, _ = collect_all(tasks, lambda _: answer)
    assert all(isinstance(record, Failure) for record in records)
    assert {record.error.phase for record in records} == {"model"}


def test_an_endpoint_that_refuses_empty_messages_still_reaches_no_answer(tmp_path):
    """As Mistral's endpoint does; a message that only has reasoning has no content."""

    def strict(request):
        if request.messages[-1].role == "assistant":
            return refusal_of(400, "Expected last role User or Tool for serving, got assistant")
        return MockAnswer(reasoning="Let me see.")

    tasks = write_sums(tmp_path / "t.jsonl", 1)
    [rollout], _ = collect_all(tasks, strict)
    assert (rollout.stop_reason, rollout.reward, len(rollout.calls)) == ("no_answer", 0.0, 2)
    assert [message.reasoning for message in rollout.responses] == ["Let me see."] * 2


def test_unknown_finish_reasons_are_recorded_and_warned_of_once(tmp_path, caplog):
    tasks = write_sums(tmp_path / "t.jsonl", 5)
    behaviour = lambda request: msgspec.structs.replace(add_up(request), finish_reason="odd")  # noqa: E731
    records, _ = collect_all(tasks, behaviour)
    assert [record.reward for record in records] == [1.0] * 5
    assert [call.finish_reason for record in records for call in record.calls] == ["odd"] * 5
    [warning] = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "'odd'" in warning


@pytest.mark.parametrize("lacks", [True, False])
def test_missing_log_probabilities_are_counted_with_one_warning(tmp_path, mock_server, lacks):
    """The mock server invents them unless an answer's body is given."""
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    bare = body_of({"content": "It is 1."}, finish_reason="stop", usage=usage)
    mock_server.behaviour = (lambda _: bare) if lacks else add_up
    where = ("--base-url", mock_server.base_url, "--model", "m", "--param", "logprobs=true")
    tasks = write_sums(tmp_path / "t.jsonl", 4)
    done = gym("collect", tasks, *where, "--out", tmp_path / "run", exit_code=0)
    assert done.stderr.count("without the log-probabilities") == lacks
    assert ("logprobs      missing from 4 answers" in done.stdout) == lacks
    for line in lines_of(tmp_path / "run" / "rollouts.jsonl"):
        assert line["calls"][0].get("lacks_logprobs", False) is lacks


def test_absurd_counts_end_no_command(tmp_path, mock_server):
    usage = {"prompt_tokens": 10**308, "completion_tokens": 10**308}
    absurd = body_of({"content": "It is 1."}, finish_reason="stop", usage=usage)
    mock_server.behaviour = lambda _: absurd
    run, tasks = tmp_path / "run", write_sums(tmp_path / "t.jsonl", 2)
    where = ("--base-url", mock_server.base_url, "--model", "m")
    gym("collect", tasks, *where, "--out", run, exit_code=0)
    assert {line["calls"][0]["response_id"] for line in lines_of(run / "rollouts.jsonl")} == {"r-7"}
    text = (run / "rollouts.jsonl").read_text(encoding="utf-8")
    text = text.replace('"usage":{}', f'"usage":{{"prompt_tokens":{10**308}}}')
    (run / "rollouts.jsonl").write_text(text, encoding="utf-8")
    for command in (("metrics", run, "--gate", "tokens >= 0"), ("verify", run)):
        gym(*command, exit_code=0)
    gym("report", run, "-o", tmp_path / "report.html", exit_code=0)
