"""A policy in the same process: an inference engine, or anything else, asked without HTTP."""

from __future__ import annotations

import inspect
from typing import Protocol, runtime_checkable

import msgspec

from gymcli.nemo_gym.payload import object_in
from gymcli.types import (
    Answer,
    FinishReason,
    JSONObject,
    Message,
    Request,
    SampledMessage,
    Tokens,
    Usage,
)


@runtime_checkable
class PolicyModel(Protocol):
    """A model in this process that can be the policy."""

    async def complete(
        self,
        messages: list[Message],
        *,
        tools: list[JSONObject] | None,
        schema: JSONObject | None,
    ) -> Message:
        """Answer a conversation with one message; a `SampledMessage` brings its token ids.

        Args:
            messages: The conversation.
            tools: The tools that the model may call, in Chat Completions shape.
            schema: A JSON Schema that constrains the text, if the request has one.

        A method that also has a parameter `params` gets the request parameters in it.
        """
        ...


class InProcessPolicy:
    """Asks a model of this process as the loop asks an endpoint."""

    def __init__(self, model: PolicyModel) -> None:
        self._model = model
        parameters = inspect.signature(model.complete).parameters.values()
        self._takes_params = any(
            parameter.name == "params" or parameter.kind is inspect.Parameter.VAR_KEYWORD
            for parameter in parameters
        )

    async def answer(self, request: Request) -> Answer:
        json_schema = object_in(object_in(request.params.get("response_format")).get("json_schema"))
        schema = json_schema.get("schema")
        # An object: the policy is the user's code, whose types nothing has checked.
        message: object = await self._model.complete(
            list(request.messages),
            tools=request.tools or None,
            schema=schema if isinstance(schema, dict) else None,
            **({"params": request.params} if self._takes_params else {}),
        )
        if not isinstance(message, Message):
            kind = type(self._model).__name__
            raise TypeError(f"{kind}.complete must return a Message, not {type(message).__name__}")
        reason: FinishReason = "refusal" if message.refusal is not None else "stop"
        if message.tool_calls:
            reason = "tool_calls"
        if not isinstance(message, SampledMessage):
            return Answer(message=message, finish_reason=reason)
        # An engine may well have arrays, or numbers of numpy, which the records cannot hold.
        tokens = msgspec.convert(msgspec.structs.asdict(message.tokens), Tokens)
        plain = Message(**{name: getattr(message, name) for name in Message.__struct_fields__})
        return Answer(
            message=plain,
            finish_reason=message.finish_reason if message.finish_reason != "stop" else reason,
            usage=Usage(prompt_tokens=len(tokens.prompt), completion_tokens=len(tokens.sampled)),
            tokens=tokens,
        )
