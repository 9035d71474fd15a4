"""The wire formats of reward models, as vLLM serves them: a conversation in, a number out.

Source: vLLM's pooling models (https://docs.vllm.ai/en/latest/models/pooling_models/). The number
becomes the text of the answer's message. These endpoints do not stream, call tools or sample, so
the parameters for that are not sent. Answers in base64, and images in `score`, are not supported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from gymcli.errors import InvalidAnswerError
from gymcli.models.chat import Chat, error_in
from gymcli.nemo_gym.payload import list_in, objects_in, text_in, usage_in
from gymcli.nemo_gym.responses_items import extra_body_fields, unsent_among
from gymcli.types import JSON, Answer, JSONObject, Message, Request

_PARAMS = (
    "activation",
    "mm_processor_kwargs",
    "priority",
    "softmax",
    "truncate_prompt_tokens",
    "use_activation",
    "user",
)
_TEMPLATE_PARAMS = (
    "add_generation_prompt",
    "add_special_tokens",
    "chat_template",
    "chat_template_kwargs",
    "continue_final_message",
)


class Scalar(NamedTuple):
    """One of the formats: how the conversation is sent, and where the number is found."""

    path: str
    conversation: Callable[[list[Message], str | None], JSONObject]
    """Returns the part of the body that is the conversation."""
    number: Callable[[JSONObject], JSON]
    """Finds the number in the only item of `data`."""
    place: str
    """The name of the number, for messages."""
    params: tuple[str, ...]
    """The request parameters that the format can carry."""

    def body(
        self,
        request: Request,
        model: str,
        *,
        stream: bool = False,
        send_reasoning: str | None = None,
        send_fields: Collection[str] = (),
    ) -> JSONObject:
        """Return the body.

        `stream` has no effect, because a number arrives in one piece. Neither has `send_fields`,
        because the fields came from another endpoint.
        """
        carried = {
            name: value
            for name, value in request.params.items()
            if value is not None and name in self.params
        }
        return {
            **carried,
            **extra_body_fields(request.params.get("extra_body")),
            "model": model,
            **self.conversation(request.messages, send_reasoning),
        }

    def unsent(self, params: JSONObject) -> list[str]:
        unknown = tuple(name for name in params if name not in (*self.params, "extra_body"))
        # `extra_body` cannot replace the conversation.
        conversation = self.conversation([], None)
        added = extra_body_fields(params.get("extra_body"))
        unsent = [f"extra_body.{name}" for name in added if name in conversation]
        return unsent_among(params, unknown) + unsent

    def answer(self, body: JSONObject) -> Answer:
        if body.get("error"):
            raise error_in(body["error"])
        if body.get("object") == "error":  # older versions of vLLM
            raise error_in(body)
        items = objects_in(body.get("data"))
        if not items:
            raise InvalidAnswerError('the body has no "data"')
        number = _finite(self.number(items[0]))
        if number is None:
            raise InvalidAnswerError(f"the {self.place} of the answer is not a finite number")
        return Answer(
            message=Message(role="assistant", content=repr(number)),
            usage=usage_in(body.get("usage")),
            model=text_in(body.get("model")) or None,
        )

    def assemble(self, events: Iterable[bytes], request: bytes = b"") -> JSONObject:
        """Refuse a stream: no request asks for one."""
        raise InvalidAnswerError(f"{self.path} answered with a stream instead of a number")


def _as_messages(messages: list[Message], send_reasoning: str | None) -> JSONObject:
    """Return a conversation as chat messages; the endpoint applies its chat template."""
    chat = Chat().body(Request(messages=messages), "", send_reasoning=send_reasoning)
    return {"messages": chat["messages"]}


def _as_pair(messages: list[Message], send_reasoning: str | None) -> JSONObject:
    earlier = [(message.role, _text_and_calls(message)) for message in messages[:-1]]
    # Cross-encoders are trained on bare questions; only several messages need their roles.
    if len(earlier) == 1:
        [(_, first)] = earlier
    else:
        first = "\n\n".join(f"{role}: {text}" for role, text in earlier)
    return {"text_1": first, "text_2": _text_and_calls(messages[-1]) if messages else ""}


def _text_and_calls(message: Message) -> str:
    calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    return "\n".join(text for text in (message.text, *calls) if text)


def _last_pooled(item: JSONObject) -> JSON:
    """Return the last number, since only the last token has seen the whole conversation."""
    value = item.get("data")
    while isinstance(value, list):
        row = value
        value = row[-1] if row else None
        # A reward model returns one number for each token, or two: for a bad and a good step.
        if isinstance(value, list) and len(value) > 2:
            raise InvalidAnswerError(
                f"the model returned {len(value)} numbers per token, which are hidden states and "
                "not rewards; is it a reward model?"
            )
    return value


def _last_class(item: JSONObject) -> JSON:
    """Return the number of the last class; of two classes, this is the positive one."""
    return next(reversed(list_in(item.get("probs"))), None)


def _finite(value: JSON) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON integers have any length
        return None
    return number if math.isfinite(number) else None


SCORE = Scalar("/score", _as_pair, lambda item: item.get("score"), '"score"', _PARAMS)
"""Rates a pair of texts: how well the second answers the first."""

POOLING = Scalar(
    "/pooling", _as_messages, _last_pooled, "last pooled value", (*_PARAMS, *_TEMPLATE_PARAMS)
)
"""Returns the output of the model's head for each token; the reward is the last value."""

CLASSIFY = Scalar(
    "/classify", _as_messages, _last_class, 'last of "probs"', (*_PARAMS, *_TEMPLATE_PARAMS)
)
"""Returns the classes; the reward is the probability, or the value, of the last one."""
