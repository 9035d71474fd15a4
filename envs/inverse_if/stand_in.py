"""A judge without a model: it decides our own criteria by rule, and others by the reference."""

import json
import re

from gymcli import Judge, Message, StandIn

from .criteria import decided, pattern_of
from .judging import BRACES, PLACEHOLDERS, quotable

__all__ = ["judging"]

FORMS = dict.fromkeys(PLACEHOLDERS, ".*") | {name: re.escape(BRACES[name]) for name in BRACES}


def judging(judge: Judge, reference: str) -> StandIn:
    """Give a stand-in that reads response and criterion from the prompt that it is shown."""
    pattern = pattern_of(judge.template, FORMS)
    expected = judge.neutralise(quotable(reference)).strip()

    def answer(messages: list[Message]) -> str:
        shown = pattern.fullmatch(messages[-1].text)
        is_met = shown is not None and _is_met(shown["criteria"], shown["model_response"], expected)
        result = "PASS" if is_met else "FAIL"
        return json.dumps({"explanation": "By rule, without a model.", "result": result})

    return StandIn(answer)


def _is_met(criterion: str, response: str, expected: str) -> bool:
    by_rule = decided(criterion, response)
    return bool(expected) and response == expected if by_rule is None else by_rule
