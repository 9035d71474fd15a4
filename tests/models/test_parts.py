"""Content parts in chat shape and in Responses shape."""

import pytest

from gymcli.nemo_gym.responses_items import part_from_responses, part_to_responses
from gymcli.types import JSONObject


@pytest.mark.parametrize(
    ("item_part", "chat_part"),
    [
        ({"type": "input_text", "text": "t"}, {"type": "text", "text": "t"}),
        (
            {"type": "input_image", "image_url": "u", "detail": "auto"},
            {"type": "image_url", "image_url": {"url": "u", "detail": "auto"}},
        ),
        (
            {"type": "input_image", "image_url": "u"},
            {"type": "image_url", "image_url": {"url": "u"}},
        ),
        (
            {"type": "input_file", "filename": "f", "file_data": "d"},
            {"type": "file", "file": {"filename": "f", "file_data": "d"}},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}},
        ),
        ({"type": "input_image", "file_id": "i"}, {"type": "input_image", "file_id": "i"}),
        ({"type": "input_video", "x": 1}, {"type": "input_video", "x": 1}),
    ],
)
def test_parts_round_trip(item_part: JSONObject, chat_part: JSONObject) -> None:
    assert part_from_responses(item_part) == chat_part
    assert part_to_responses(chat_part, "user") == item_part


def test_part_from_responses_leaves_out_what_chat_refuses() -> None:
    part: JSONObject = {"type": "output_text", "text": "t", "annotations": [], "logprobs": None}
    assert part_from_responses(part) == {"type": "text", "text": "t"}
    image: JSONObject = {"type": "input_image", "image_url": "u", "detail": None}
    assert part_from_responses(image) == {"type": "image_url", "image_url": {"url": "u"}}


def test_part_to_responses_of_odd_chat_parts() -> None:
    text: JSONObject = {"type": "text", "text": "t", "cache_control": {}}
    assert part_to_responses(text, "assistant") == {**text, "type": "output_text"}
    bare: JSONObject = {"type": "image_url", "image_url": "u"}
    assert part_to_responses(bare, "user") == {"type": "input_image", "image_url": "u"}
    odd: JSONObject = {"type": "file", "file": "f"}
    assert part_to_responses(odd, "user") == odd
