"""What an answer took, read from bodies that are of no other use."""

import msgspec
import pytest

from gymcli.models.dialects import DIALECTS
from gymcli.nemo_gym.payload import usage_of
from gymcli.types import Usage


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}', (7, 2)),
        (b'{"output": [], "usage": {"input_tokens": 7, "output_tokens": 2}}', (7, 2)),
        (b'{"choices": []}', (0, 0)),
        (b'{"usage": null}', (0, 0)),
        (b'{"usage": {"prompt_tokens": "many"}}', (0, 0)),
        (b"<html></html>", (0, 0)),
    ],
)
def test_usage_of_a_body_that_is_no_answer(body, expected):
    prompt, completion = expected
    assert usage_of(body) == Usage(prompt_tokens=prompt, completion_tokens=completion)


TEXT = {"type": "message", "content": [{"type": "output_text", "text": "7"}]}


@pytest.mark.parametrize("count", [10**308, 1e308, 2**64])
@pytest.mark.parametrize("form", ["chat", "responses"])
def test_usage_with_a_count_that_cannot_be_is_not_believed(count, form):
    names = ("prompt_tokens", "completion_tokens")
    kept = {"choices": [{"message": {"content": "7"}}]}
    if form == "responses":
        names, kept = ("input_tokens", "output_tokens"), {"output": [TEXT]}
    body = msgspec.json.encode({**kept, "usage": dict(zip(names, (count, 2), strict=True))})
    assert usage_of(body) == DIALECTS[form].answer(body).usage == Usage()
