"""A vLLM-shaped endpoint that knows exactly which token ids it saw and sampled."""

import math
import random
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from gymcli.mock import MockAnswer
from gymcli.types import JSONObject, Request


class Sampled(NamedTuple):
    """One answer, as the engine knows it."""

    prompt: list[int]
    sampled: list[int]
    logprobs: list[float]


class TokenEngine:
    """Answers as a behaviour does, with ids that no tokenizer would make of the text.

    Ids of earlier answers stay as they were sampled; everything else is an id a character.

    Args:
        behaviour: Decides what is said, except to a probe, which has no seed.
    """

    def __init__(self, behaviour: Callable[[Request], MockAnswer]) -> None:
        self.answers: dict[str, Sampled] = {}
        """What was sampled, by the answer's text, which is unique."""
        self._behaviour = behaviour
        self._random = random.Random(0)

    def __call__(self, request: Request) -> MockAnswer:
        is_probe = "seed" not in request.params
        said = MockAnswer(text="hi") if is_probe else self._behaviour(request)
        if said.status != 200:
            return said
        calls = [
            {
                "id": f"call-{number}",
                "type": "function",
                "function": {"name": name, "arguments": msgspec.json.encode(arguments).decode()},
            }
            for number, (name, arguments) in enumerate(said.tool_calls)
        ]
        text = f"{said.text or ''} {self._random.getrandbits(40)}"
        prompt = self._prompt(request)
        sampled = [self._random.randrange(1000, 50_000) for _ in range(5)]
        logprobs = [math.log(self._random.uniform(0.1, 1.0)) for _ in sampled]
        self.answers[text] = Sampled(prompt, sampled, logprobs)
        body: JSONObject = {
            "id": f"chatcmpl-{len(self.answers)}",
            "object": "chat.completion",
            "model": "m",
            "prompt_token_ids": prompt,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "tool_calls": calls},
                    "finish_reason": "tool_calls" if calls else "stop",
                    "token_ids": sampled,
                    "logprobs": {
                        "content": [
                            {"token": f"<{one}>", "logprob": logprob, "top_logprobs": []}
                            for one, logprob in zip(sampled, logprobs, strict=True)
                        ]
                    },
                }
            ],
            "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(sampled)},
        }
        return MockAnswer(body=msgspec.json.encode(body).decode(), delay=said.delay)

    def _prompt(self, request: Request) -> list[int]:
        ids: list[int] = []
        for message in request.messages:
            own = self.answers.get(message.text)
            ids += [0, *map(ord, message.text)] if own is None else own.sampled
        return ids
