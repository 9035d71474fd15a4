"""The Responses wire format."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gymcli.errors import InvalidAnswerError
from gymcli.models.chat import decode_events, error_in, is_thought
from gymcli.models.finish_reasons import finished_answer
from gymcli.nemo_gym.payload import (
    join_text,
    list_in,
    object_in,
    objects_in,
    text_in,
    usage_in,
)
from gymcli.nemo_gym.responses_items import (
    NOT_IN_RESPONSES,
    items_from_messages,
    params_to_responses,
    read_turn,
    tools_to_responses,
    unsent_among,
)
from gymcli.types import JSON, Answer, JSONObject, Request

_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")


class Responses:
    """Responses, as OpenAI documents the format; each request carries the whole conversation."""

    path = "/responses"

    def body(
        self,
        request: Request,
        model: str,
        *,
        stream: bool = False,
        send_reasoning: str | None = None,
        send_fields: Collection[str] = (),
    ) -> JSONObject:
        """Return the body; any `send_reasoning` sends reasoning, in the format's own items.

        Items that a message stores, such as encrypted reasoning, are always sent.
        """
        body = params_to_responses(request.params)
        body["model"] = model
        messages = request.messages
        if send_reasoning is None:
            messages = [message for message in messages if not is_thought(message)]
        body["input"] = items_from_messages(
            messages, with_reasoning=send_reasoning is not None, send_fields=send_fields
        )
        if request.tools:
            body["tools"] = tools_to_responses(request.tools)
        # Only the endpoint's settings decide whether the answer is streamed.
        body.pop("stream", None)
        if stream:
            body["stream"] = True
        return body

    def unsent(self, params: JSONObject) -> list[str]:
        return unsent_among(params, NOT_IN_RESPONSES)

    def answer(self, body: JSONObject) -> Answer:
        status = body.get("status")
        if body.get("error"):
            raise error_in(body["error"])
        if status not in (None, "completed", "incomplete"):
            raise InvalidAnswerError(f"the response has the status {status!r}")
        if not isinstance(body.get("output"), list):
            raise InvalidAnswerError('the body has no "output"')
        output = objects_in(body["output"])
        turn = read_turn(output)
        # Encrypted reasoning and phases must be sent back unchanged, so their items are stored.
        is_opaque = any(item.get("encrypted_content") or item.get("phase") for item in output)
        return finished_answer(
            body,
            _finish_word(body),
            content=join_text(turn.parts or []),
            reasoning=turn.reasoning,
            refusal=turn.refusal,
            calls=turn.calls,
            logprobs=_logprobs(output),
            extra=turn.extra,
            response_items=output if turn.other_items or is_opaque else None,
            usage=usage_in(body.get("usage"), "input", "output"),
        )

    def assemble(self, events: Iterable[bytes], request: bytes = b"") -> JSONObject:
        done: list[JSONObject] = []
        for event in decode_events(events):
            if event.get("type") == "response.output_item.done":
                done.append(event)
            if event.get("type") in _LAST_EVENTS:
                response = event.get("response")
                if not isinstance(response, dict):
                    raise InvalidAnswerError("the last event of the stream has no response")
                # Some servers leave its output empty and send the items only in earlier events.
                if not response.get("output") and done:
                    done.sort(key=_output_index)
                    response = {**response, "output": [event.get("item") for event in done]}
                return response
            if event.get("type") == "error" or event.get("error"):
                return {"error": event.get("error") or event}
        raise InvalidAnswerError("the stream ended early: no event carries the response")


def _output_index(event: JSONObject) -> int:
    index = event.get("output_index")
    return index if isinstance(index, int) else 0


def _finish_word(body: JSONObject) -> str:
    reason = text_in(object_in(body.get("incomplete_details")).get("reason"))
    # Without a reason, the token limit is the likely one.
    return reason or ("max_output_tokens" if body.get("status") == "incomplete" else "stop")


def _logprobs(output: list[JSONObject]) -> JSON:
    parts = [part for item in output for part in objects_in(item.get("content"))]
    entries = [entry for part in parts for entry in list_in(part.get("logprobs"))]
    return {"content": entries} if entries else None
