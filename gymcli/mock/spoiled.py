"""Makes an answer say what it should not."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gymcli.mock.behaviours import MockAnswer, argument_text
from gymcli.mock.faults import Spoil
from gymcli.types import JSONObject, Request, Usage

__all__ = ["HUGE", "UNKNOWN_FINISH", "UNKNOWN_TOOL", "spoiled"]

HUGE = 4 * 2**20
"""Characters of a huge text, at least."""

UNKNOWN_FINISH = "mock_unknown"
UNKNOWN_TOOL = "mock_unknown_tool"

_Call = tuple[str, str | JSONObject]


def spoiled(answer: MockAnswer, kind: Spoil, request: Request) -> MockAnswer | None:
    """Give the answer with a fault; None where the request leaves no room for it.

    Faults of tool calls are put into the calls of the answer. Where it has none, it becomes a call
    of the first tool of the request, with no arguments.
    """
    if kind in _ANSWERS:
        return _ANSWERS[kind](answer)
    calls = list(answer.tool_calls)
    if not calls:
        name = _first_tool(request)
        if name is None:
            return None
        calls = [(name, {})]
        answer = MockAnswer(tool_calls=calls, usage=answer.usage)
    # What was kept word for word of another endpoint would be sent in place of the calls.
    answer = msgspec.structs.replace(answer, response_items=[])
    if kind == "duplicate-ids":
        calls = calls if len(calls) > 1 else calls * 2
        same = [answer.call_ids[0] if answer.call_ids else "call_twice"] * len(calls)
        return msgspec.structs.replace(answer, tool_calls=calls, call_ids=same)
    made = [_CALLS[kind](name, argument_text(arguments)) for name, arguments in calls]
    return msgspec.structs.replace(answer, tool_calls=made)


def _huge(answer: MockAnswer) -> MockAnswer:
    text = answer.text or "huge"
    repeated = f"{text}\n" * (HUGE // (len(text) + 1) + 1)
    return msgspec.structs.replace(answer, text=repeated, logprobs=None, response_items=[])


def _unfinished(word: str) -> Callable[[MockAnswer], MockAnswer]:
    """Return what cuts a text in the middle, for a reason of the endpoint's own."""

    def cut(answer: MockAnswer) -> MockAnswer:
        text = answer.text or ""
        return MockAnswer(text=text[: len(text) // 2], finish_reason=word, usage=answer.usage)

    return cut


_NO_ANSWER = Usage(prompt_tokens=1)

_ANSWERS: dict[str, Callable[[MockAnswer], MockAnswer]] = {
    "empty-choices": lambda answer: MockAnswer(has_choices=False, usage=answer.usage),
    "null-content": lambda answer: MockAnswer(usage=answer.usage),
    "unknown-finish": lambda answer: msgspec.structs.replace(answer, finish_reason=UNKNOWN_FINISH),
    "finish-abort": _unfinished("abort"),
    "finish-error": _unfinished("error"),
    "finish-cancelled": _unfinished("cancelled"),
    "finish-insufficient": _unfinished("insufficient_system_resource"),
    "null-finish": lambda _: MockAnswer(finish_reason="", usage=_NO_ANSWER),
    "empty-message": lambda _: MockAnswer(has_message=False, usage=_NO_ANSWER),
    "huge": _huge,
}

_CALLS: dict[str, Callable[[str, str], _Call]] = {
    # Nothing that ends so is JSON, whatever the script said.
    "bad-arguments": lambda name, text: (name, f"{text[:-1]} and"),
    "double-arguments": lambda name, text: (name, msgspec.json.encode(text).decode()),
    "array-arguments": lambda name, text: (name, f"[{text}]"),
    "unknown-tool": lambda _name, text: (UNKNOWN_TOOL, text),
}


def _first_tool(request: Request) -> str | None:
    """Give the name of the first function among the tools of a request, in either dialect."""
    for tool in request.tools:
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else tool.get("name")
        if isinstance(name, str):
            return name
    return None
