"""Token ids and log-probabilities of the mock server, by a small deterministic tokenizer.

Ids below 256 are bytes, the next 65,536 are pairs of bytes, and the last two begin and end a
message. Text becomes pairs from the start of each line; a line break is always an id of its own, so
that a conversation begins with the same ids when it is rendered again with more messages.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from gymcli.errors import UsageError
from gymcli.mock.behaviours import MockAnswer, argument_text
from gymcli.mock.wire_formats import FORMATS, ParsedRequest
from gymcli.nemo_gym.payload import list_in, object_in
from gymcli.nemo_gym.responses_items import messages_from_items
from gymcli.suggestions import did_you_mean
from gymcli.types import FunctionCall, JSONObject, Message, Tokens, TokenSource, ToolCall

_SOURCES: tuple[TokenSource, ...] = ("vllm", "token_id", "llamacpp", "nemo_gym")
_PAIRS = 256
"""The first id of a pair of bytes."""
_START = _PAIRS + 2**16
END = _START + 1
"""The id that ends a message."""
END_TEXT = "<|im_end|>"
_SPECIAL = {"<|im_start|>": _START, END_TEXT: END}
_SPECIAL_TEXT = re.compile(r"(<\|im_start\|>|<\|im_end\|>)")
_PIECE = re.compile(rb"\n|[^\n]{1,2}")


def encode(text: str, *, parse_special: bool = True) -> list[int]:
    """Return the ids of a text; without `parse_special`, what looks like a special id is text."""
    ids: list[int] = []
    for part in _SPECIAL_TEXT.split(text) if parse_special else [text]:
        if parse_special and part in _SPECIAL:
            ids.append(_SPECIAL[part])
            continue
        pieces = _PIECE.findall(part.encode("utf-8", "replace"))
        ids += [_PAIRS + int.from_bytes(p, "big") if len(p) == 2 else p[0] for p in pieces]
    return ids


def decode(ids: Iterable[int]) -> str:
    """Return the text of ids, without special ones; bytes that are no UTF-8 are replaced."""
    encoded_text = b"".join(_bytes_of(number) for number in ids if number < _START)
    return encoded_text.decode("utf-8", "replace")


def render(messages: Sequence[Message], tools: Sequence[JSONObject] = ()) -> str:
    """Return a conversation as the model reads it: ChatML, with tools as Hermes writes them."""
    tool_lines = "".join(f"{msgspec.json.encode(tool).decode()}\n" for tool in tools)
    turns = [("system", f"# Tools\n{tool_lines}")] if tools else []
    turns += [(message.role, message_text(message)) for message in messages]
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
    return f"{text}<|im_start|>assistant\n"


def message_text(message: Message) -> str:
    thought = f"<think>\n{message.reasoning}\n</think>\n" if message.reasoning else ""
    calls = "".join(
        f'\n<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'
        for call in message.tool_calls
    )
    return f"{thought}{message.text}{message.refusal or ''}{calls}"


class TokenSampler:
    """Samples the ids of answers, as an engine would report them.

    They depend only on the prompt, on how often it was seen before, and on the seed.

    Args:
        source: The server whose wire format carries them.
        drift: The share of pairs that are sampled as two single bytes: the text is the same, but a
            prompt that renders it again has other ids.
        weight_version: Reported with every answer, unless it is empty.
        seed: Of the log-probabilities and the drift.
    """

    def __init__(
        self,
        source: TokenSource,
        *,
        drift: float = 0.0,
        weight_version: str = "",
        seed: int = 0,
    ) -> None:
        self.source = source
        # NeMo Gym's server alone puts ids into responses.
        self.dialects = ("chat", "responses") if source == "nemo_gym" else ("chat",)
        self._drift = drift
        self._weight_version = weight_version
        self._seed = seed
        self._seen: Counter[int] = Counter()

    @classmethod
    def parse(
        cls, text: str | None, *, drift: float, weight_version: str, seed: int
    ) -> TokenSampler | None:
        """Read the options of `gym mock`; None: it reports no token ids.

        Raises:
            UsageError: There is no such source, or an option needs `--tokens`.
        """
        if text is None:
            if drift or weight_version:
                option = "--token-drift" if drift else "--weight-version"
                raise UsageError(f"{option}: needs --tokens, which says how token ids are reported")
            return None
        sources: dict[str, TokenSource] = {name: name for name in _SOURCES}
        if text not in sources:
            hint = did_you_mean(text, _SOURCES)
            raise UsageError(
                f"--tokens {text}: is not one of {', '.join(_SOURCES)}{hint and f'; {hint}'}"
            )
        return cls(sources[text], drift=drift, weight_version=weight_version, seed=seed)

    def sample(self, prompt: list[int], text: str, *, is_cut: bool = False) -> Tokens:
        """Return the ids of an answer; one that is cut lacks the id that ends a message."""
        key = zlib.crc32(msgspec.json.encode(prompt))
        salt = f"{self._seed}/{key}/{self._seen[key]}"
        self._seen[key] += 1
        sampled: list[int] = []
        for place, number in enumerate(encode(text, parse_special=False)):
            if number >= _PAIRS and _share(f"{salt}/drift/{place}") < self._drift:
                sampled += _bytes_of(number)
            else:
                sampled.append(number)
        if not is_cut:
            sampled.append(END)
        return Tokens(
            prompt=prompt,
            sampled=sampled,
            logprobs=[
                -5 * _share(f"{salt}/{place}/{number}") - 1e-6
                for place, number in enumerate(sampled)
            ],
            source=self.source,
            logprob_mode="raw",
            weight_version=self._weight_version,
        )


def _bytes_of(number: int) -> bytes:
    return (number - _PAIRS).to_bytes(2, "big") if number >= _PAIRS else bytes([number])


def _share(text: str) -> float:
    return zlib.crc32(text.encode()) / 2**32


def with_logprobs(answer: MockAnswer, params: JSONObject) -> MockAnswer:
    """Return the answer with log probabilities of its text, if the request asks for them.

    They are invented, and always the same for the same text. The answer's own are not replaced.
    """
    include = params.get("include")
    is_asked = params.get("logprobs") is True or (
        isinstance(include, list) and "message.output_text.logprobs" in include
    )
    if not is_asked or answer.logprobs is not None or not answer.text:
        return answer
    top_logprobs = params.get("top_logprobs")
    num_top = min(top_logprobs, 20) if isinstance(top_logprobs, int) else 0  # OpenAI's limit
    content: list[JSONObject] = []
    for start in range(0, len(answer.text), 4):  # characters of a token, as in the usage
        token = answer.text[start : start + 4]
        encoded = token.encode("utf-8", "replace")
        first = _logprob(token, -(zlib.crc32(encoded) % 1000 + 1) / 1000)
        alternatives = [_logprob(f"{token}{rank}", -1.0 - rank) for rank in range(1, num_top)]
        content.append({**first, "top_logprobs": [first, *alternatives][:num_top]})
    return msgspec.structs.replace(answer, logprobs={"content": content})


def _logprob(token: str, logprob: float) -> JSONObject:
    encoded = token.encode("utf-8", "replace")
    return {"token": token, "logprob": logprob, "bytes": list(encoded)}


def tokens_of(answer: MockAnswer, request: ParsedRequest, sampler: TokenSampler) -> Tokens:
    message = Message(
        role="assistant",
        content=answer.text,
        reasoning=answer.reasoning,
        refusal=answer.refusal,
        tool_calls=[
            ToolCall(id="", function=FunctionCall(name, argument_text(arguments)))
            for name, arguments in answer.tool_calls
        ],
    )
    items = [*answer.response_items]
    text = "".join(map(message_text, messages_from_items(items) if items else [message]))
    return sampler.sample(_prompt_ids(request), text, is_cut=answer.finish_reason == "length")


def with_token_logprobs(answer: MockAnswer, tokens: Tokens, params: JSONObject) -> MockAnswer:
    """Return the answer with the log-probability of each id, if the request asks for them.

    The answer's own are not replaced.
    """
    is_llama = tokens.source == "llamacpp"
    num_top = params.get("top_logprobs", 20 if is_llama else 0)
    # In llama.cpp 0 turns all log-probabilities off, and in vLLM null does.
    is_off = num_top == 0 if is_llama else num_top is None
    is_asked = params.get("logprobs") is True and not is_off
    # NeMo Gym's server takes them out, since its own fields have them.
    if not is_asked or answer.logprobs is not None or tokens.source == "nemo_gym":
        return answer
    shows_ids = params.get("return_tokens_as_token_ids") is True and not is_llama
    content = []
    for number, logprob in zip(tokens.sampled, tokens.logprobs, strict=True):
        entry = _logprob(f"token_id:{number}" if shows_ids else decode([number]), logprob)
        if is_llama:
            entry["id"] = number
        content.append({**entry, "top_logprobs": [entry] if num_top else []})
    return msgspec.structs.replace(answer, logprobs={"content": content})


def _prompt_ids(request: ParsedRequest) -> list[int]:
    """Return the ids of a prompt: those that the last assistant message has, then what follows."""
    key = "messages" if "messages" in request.body else "input"
    entries = list_in(request.body.get(key))
    for index in reversed(range(len(entries))):
        entry = object_in(entries[index])
        if "generation_token_ids" in entry:
            ids = msgspec.convert(entry.get("prompt_token_ids"), list[int])
            ids += msgspec.convert(entry["generation_token_ids"], list[int])
            new_messages, _ = request.format.read({key: entries[index + 1 :]})
            # The template ends a message that was cut.
            return ids + encode(f"{'' if ids[-1:] == [END] else END_TEXT}\n{render(new_messages)}")
    return encode(render(request.model_request.messages, request.model_request.tools))


def answer_tokenizing(path: str, raw: bytes, source: TokenSource) -> JSONObject | None:
    """Return the answer to `/tokenize` or `/apply-template`; None: the server has no such address.

    Raises ValueError or one of `JSON_ERRORS` if it is not a request.
    """
    if source == "nemo_gym" or (path == "/apply-template" and source != "llamacpp"):
        return None
    body = msgspec.json.decode(raw, type=JSONObject)
    tools = msgspec.convert(body.get("tools") or [], list[JSONObject])
    read_chat = FORMATS["/v1/chat/completions"].read
    if path == "/apply-template":
        return {"prompt": render(read_chat(body)[0], tools)}
    if source == "llamacpp":
        text = msgspec.convert(body.get("content"), str)
        return {"tokens": encode(text, parse_special=body.get("parse_special", True) is True)}
    text = render(read_chat(body)[0], tools) if "messages" in body else str(body.get("prompt"))
    ids = encode(text)
    return {"count": len(ids), "max_model_len": 2**20, "tokens": ids, "token_strs": None}
