"""Drift: what a trainer gets wrong that renders conversations again instead of using token ids.

An answer's text may be made of other ids than those that a tokenizer makes of it, and a template
may write a message of the history in another way than the model did.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol, Self, cast

import msgspec

from gymcli.errors import (
    FatalEndpointError,
    InvalidAnswerError,
    MissingPackageError,
    ModelError,
    UsageError,
    described,
)
from gymcli.metrics.measure import open_run
from gymcli.metrics.results import TokenDrift
from gymcli.models.chat import Chat
from gymcli.models.endpoint import Endpoint, checked_base_url
from gymcli.models.http import Transport
from gymcli.models.local_model import LocalServer, parse_local
from gymcli.nemo_gym.payload import object_in, objects_in, text_in
from gymcli.store.rollout_files import decode_rollout, rollout_lines
from gymcli.store.sequences import sequences
from gymcli.store.tokens import TokenCall, TokenFile, num_common, prompts
from gymcli.types import JSON_ERRORS, JSONObject, Message, Request, Rollout


class Renderer(Protocol):
    """Applies a chat template and a tokenizer."""

    async def render(self, messages: Sequence[Message], tools: Sequence[JSONObject]) -> list[int]:
        """Return the ids of a conversation that ends with an answer; more ids may follow it."""


async def measure_drift(
    run: Path, renderer: Renderer, *, env: str | None = None
) -> dict[str, TokenDrift]:
    """Render the conversation of every recorded call again and return what changed, by environment.

    `env` is the environment of lines that name none.

    Raises:
        UsageError: The run has no token ids, or a conversation cannot be rendered.
    """
    reading = open_run(run, env=env)
    drift_by_environment: dict[str, TokenDrift] = {}
    with TokenFile(run) as file:
        if not file.path.is_file() or reading.rollouts is None:
            raise UsageError(
                f"{run}: no token ids are recorded, with which --tokenizer compares; record them "
                "with gym collect --record-tokens"
            )
        for line in rollout_lines(reading.rollouts):
            rollout = decode_rollout(line.number, line.data, reading.reading)
            name = reading.names.get(rollout.env, rollout.env)
            try:
                drift = await _drift_of(rollout, file.calls(rollout), renderer)
            except ModelError as error:
                place = f"attempt {rollout.attempt} of task {rollout.task_id} ({rollout.env})"
                raise UsageError(f"--tokenizer: {place} cannot be rendered: {error}") from error
            drift_by_environment.setdefault(name, TokenDrift()).add(drift)
    return drift_by_environment


async def _drift_of(rollout: Rollout, calls: list[TokenCall], renderer: Renderer) -> TokenDrift:
    messages = rollout.messages
    ends = [
        number
        for number, message in enumerate(messages, 1)
        if message.role == "assistant" and number > rollout.num_prompt_messages
    ]
    drift = TokenDrift()
    if calls and len(ends) != len(calls):  # the environment wrote some of them
        drift.num_unrendered = 1
        return drift
    changed_calls = set()
    for end, call, prompt in zip(ends, calls, prompts(calls), strict=bool(calls)):
        if call.problem:
            continue
        recorded_ids = prompt + call.sampled
        rendered_ids = await renderer.render(messages[:end], rollout.tools)
        num_changed = min(
            len(recorded_ids) - num_common(recorded_ids, rendered_ids), len(call.sampled)
        )
        drift.num_calls += 1
        drift.num_sampled += len(call.sampled)
        drift.num_changed_sampled += num_changed
        if num_changed:
            changed_calls.add(call.call)
    sequences_of_calls = [sequence.calls for sequence in sequences(rollout, calls)]
    drift.num_changed_calls = len(changed_calls)
    drift.num_sequences = len(sequences_of_calls)
    drift.num_changed_sequences = sum(
        not changed_calls.isdisjoint(sequence) for sequence in sequences_of_calls
    )
    return drift


@asynccontextmanager
async def open_renderer(tokenizer: str) -> AsyncIterator[Renderer]:
    """Open a tokenizer for the time of a block.

    It is the folder of a model, which transformers loads; the URL of a server of llama.cpp or vLLM;
    or `local` or `local:PATH.gguf`, as for `--model`.

    Raises:
        UsageError: There is no such tokenizer, or a package is missing.
        FatalEndpointError: The server cannot be reached.
    """
    weights = parse_local(tokenizer)
    async with AsyncExitStack() as stack:
        if weights is not None:
            tokenizer = (await stack.enter_async_context(LocalServer(weights))).base_url
        elif not tokenizer.startswith(("http://", "https://")):
            yield _FolderRenderer(Path(tokenizer))
            return
        try:
            endpoint = Endpoint(base_url=checked_base_url(tokenizer), model="tokenizer")
        except ValueError as error:
            raise UsageError(f"--tokenizer: {error}") from error
        transport = await stack.enter_async_context(Transport(endpoint))
        yield await _ServerRenderer.probe(transport, endpoint.base_url)


class _FolderRenderer:
    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UsageError(
                f"--tokenizer {folder}: is not a folder; name the folder of a model, the URL of a "
                "server of llama.cpp or vLLM, or local"
            )
        if importlib.util.find_spec("transformers") is None:
            raise MissingPackageError(
                f"--tokenizer {folder} needs the package transformers, which is not installed: "
                "pip install transformers; or name the URL of a server of llama.cpp or vLLM"
            )
        from transformers import AutoTokenizer  # late: heavy, and an extra package

        try:
            self._tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        except Exception as error:  # what it raises depends on the files
            raise UsageError(
                f"--tokenizer {folder}: cannot be loaded: {described(error)}"
            ) from error

    async def render(self, messages: Sequence[Message], tools: Sequence[JSONObject]) -> list[int]:
        sent = objects_in(msgspec.json.decode(_body(messages, tools))["messages"])
        for message in sent:
            parts = objects_in(message.get("content"))
            if all(part.get("type") == "text" for part in parts):  # templates want a text
                content = "".join(text_in(part.get("text")) for part in parts)
                message["content"] = content or message.get("content") or ""
            for call in objects_in(message.get("tool_calls")):
                function = object_in(call["function"])
                with suppress(*JSON_ERRORS):  # what is not JSON stays a text
                    function["arguments"] = msgspec.json.decode(text_in(function["arguments"]))
        try:
            ids = self._tokenizer.apply_chat_template(
                sent, tools=list(tools) or None, add_generation_prompt=False, return_dict=False
            )
        except Exception as error:  # a template may raise anything
            raise InvalidAnswerError(described(error)) from error
        return cast("list[int]", ids)


class _ServerRenderer:
    def __init__(self, transport: Transport, base_url: str, *, is_llama: bool) -> None:
        self._transport = transport
        self._target = transport.target(base_url)
        self._is_llama = is_llama

    @classmethod
    async def probe(cls, transport: Transport, base_url: str) -> Self:
        question = [Message(role="user", content="?"), Message(role="assistant", content="!")]
        failures = []
        for is_llama in (True, False):
            renderer = cls(transport, base_url, is_llama=is_llama)
            try:
                if await renderer.render(question, ()):
                    return renderer
                failures.append("no ids")
            except ModelError as error:
                if error.status is None:
                    raise FatalEndpointError(f"--tokenizer: {error}") from error
                failures.append(str(error))
        raise UsageError(
            f"--tokenizer {base_url}: renders no conversation, neither as a server of llama.cpp "
            f"({failures[0]}) nor of vLLM ({failures[1]})"
        )

    async def render(self, messages: Sequence[Message], tools: Sequence[JSONObject]) -> list[int]:
        if not self._is_llama:
            return await self._tokens(_body(messages, tools))
        # It would leave a last message of the assistant open, and refuses one with tool calls.
        end = [Message(role="tool", tool_call_id=call.id) for call in messages[-1].tool_calls]
        body = _body([*messages, *(end or [Message(role="user", content="")])], tools)
        template = await self._transport.call(self._target, "/apply-template", body)
        text = {"content": text_in(template.get("prompt")), "add_special": True}
        return await self._tokens(msgspec.json.encode({**text, "parse_special": True}))

    async def _tokens(self, payload: bytes) -> list[int]:
        answer = await self._transport.call(self._target, "/tokenize", payload)
        try:
            return msgspec.convert(answer.get("tokens"), list[int])
        except msgspec.ValidationError as error:
            raise InvalidAnswerError(f"/tokenize: no ids: {error}", status=200) from error


def _body(messages: Sequence[Message], tools: Sequence[JSONObject]) -> bytes:
    request = Request(messages=list(messages), tools=list(tools))
    body = Chat().body(request, "", send_reasoning="reasoning_content")
    del body["model"]  # a server knows its own, and refuses others
    return msgspec.json.encode({**body, "add_generation_prompt": False})
