"""Scripted models for roles."""

import asyncio

from gymcli.environment.judge import StandIn
from gymcli.types import Message


def test_stand_in_answers_from_the_conversation():
    stand_in = StandIn(lambda messages: str(len(messages)))
    asked = [Message(role="user", content="How many?")]
    answer = asyncio.run(stand_in.complete(asked, schema={}, params={}, cache="1"))
    assert answer == Message(role="assistant", content="1")
    assert not stand_in.is_scalar
    assert StandIn(lambda messages: "0.5", is_scalar=True).is_scalar
