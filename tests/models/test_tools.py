"""Tools and tool choices in chat shape and in the flat shape."""

import pytest

from gymcli.nemo_gym.responses_items import (
    tool_choice_from_responses,
    tool_choice_to_responses,
    tools_from_responses,
    tools_to_responses,
)
from gymcli.types import JSON, JSONObject


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"description": ""},
        {"description": None},
        {"description": "d", "parameters": {"type": "object"}, "strict": True},
        {"parameters": None, "strict": False},
        {"strict": None},
    ],
)
def test_tools_wrap_and_unwrap_functions(fields: JSONObject) -> None:
    flat: list[JSONObject] = [{"type": "function", "name": "f", **fields}]
    wrapped: list[JSONObject] = [{"type": "function", "function": {"name": "f", **fields}}]
    assert tools_from_responses(flat) == wrapped
    assert tools_to_responses(wrapped) == flat
    assert tools_from_responses(wrapped) == wrapped


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search", "filters": None},
        {"type": "mcp", "server_label": "l", "name": "n"},
        {"type": "custom", "name": "c"},
        {"name": "no type"},
    ],
)
def test_tools_leave_hosted_ones_alone(tool: JSONObject) -> None:
    assert tools_from_responses([tool]) == [tool]
    assert tools_to_responses([tool]) == [tool]


def test_tools_from_responses_refuses_what_is_no_object() -> None:
    with pytest.raises(ValueError, match=r"tools\[1\] is not an object"):
        tools_from_responses([{}, "f"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("flat", "wrapped"),
    [
        ({"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
        ({"type": "custom", "name": "f"}, {"type": "custom", "custom": {"name": "f"}}),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "f"}, {"type": "web_search"}],
            },
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [
                        {"type": "function", "function": {"name": "f"}},
                        {"type": "web_search"},
                    ],
                },
            },
        ),
        (
            {"type": "allowed_tools", "mode": "auto"},
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}},
        ),
    ],
)
def test_tool_choice_round_trip(flat: JSON, wrapped: JSON) -> None:
    assert tool_choice_from_responses(flat) == wrapped
    assert tool_choice_to_responses(wrapped) == flat
    assert tool_choice_from_responses(wrapped) == wrapped
