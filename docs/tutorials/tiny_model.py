"""A tiny model without a download, and a server that answers with its live weights.

The server speaks the part of vLLM's chat API that training needs: the token ids of prompt and
answer, their log-probabilities, and tool calls in the format of Hermes.
"""

import asyncio
import json
import re
import threading
from collections.abc import Iterable
from typing import Any, Self

import torch
from aiohttp import web
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

# Tools are not shown: so small a model learns them by heart.
CHAT_TEMPLATE = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or "" }}{% for call in m.tool_calls or [] %}\
<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def make_tokenizer(conversations: Iterable[list[dict[str, Any]]]) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE with a chat template, trained on conversations in chat shape."""
    bpe = Tokenizer(models.BPE())
    # Whole phrases become tokens, but none includes a digit, or the line break that ends a prompt:
    # a prompt must have the same ids with an answer and without.
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<|pad|>",
        eos_token="<|im_end|>",
        extra_special_tokens=["<|im_start|>"],
        chat_template=CHAT_TEMPLATE,
    )
    texts = [tokenizer.apply_chat_template(messages, tokenize=False) for messages in conversations]
    trainer = trainers.BpeTrainer(
        special_tokens=tokenizer.all_special_tokens,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        vocab_size=400,
        show_progress=False,
    )
    parts = (part for text in texts for part in re.split(r"<\|im_\w+\|>", text))
    tokenizer.backend_tokenizer.train_from_iterator(parts, trainer)
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Return a Qwen2 of 150,000 parameters with random weights."""
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


@torch.no_grad()
def sample(
    model: Qwen2ForCausalLM, prompts: list[list[int]], max_tokens: int
) -> list[tuple[list[int], list[float]]]:
    """Return for each prompt the sampled ids and the logarithms of their probabilities.

    Temperature 1 and nothing cut off: exactly the distribution that the trainer computes.
    """
    pad, end = model.config.pad_token_id, model.config.eos_token_id
    width = max(map(len, prompts))
    output = model.generate(
        torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts]),
        attention_mask=torch.tensor(
            [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        ),
        max_new_tokens=max_tokens,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    sampled = output.sequences[:, width:]
    logprobs = torch.stack(output.logits, dim=1).log_softmax(-1)
    chosen = logprobs.gather(-1, sampled.unsqueeze(-1)).squeeze(-1)
    samples = []
    for ids, values in zip(sampled.tolist(), chosen.tolist(), strict=True):
        length = ids.index(end) + 1 if end in ids else len(ids)
        samples.append((ids[:length], values[:length]))
    return samples


class ModelServer:
    """Serves a model in a thread of its own; a context manager.

    The weights are those that the model has at the moment of sampling, so a trainer in the same
    process needs to send no update.
    """

    def __init__(self, model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.base_url = ""
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._lock = asyncio.Lock()
        self._prompts: list[list[int]] = []
        self._max_tokens = 0
        self._batch: asyncio.Task[list[tuple[list[int], list[float]]]] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        if (body.get("temperature", 1), body.get("top_p", 1)) != (1, 1):
            raise web.HTTPBadRequest(text="this server knows only temperature 1 and top_p 1")
        for message in body["messages"]:
            for call in message.get("tool_calls") or []:
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        prompt = self.tokenizer.apply_chat_template(
            body["messages"], add_generation_prompt=True, return_dict=False
        )
        max_tokens = body.get("max_tokens", 64)
        ids, logprobs = await self._sample(prompt, max_tokens)
        ids, logprobs = ids[:max_tokens], logprobs[:max_tokens]
        message = chat_message(self.tokenizer.decode(ids, skip_special_tokens=True))
        reason = "tool_calls" if "tool_calls" in message else "stop"
        if ids[-1] != self.tokenizer.eos_token_id:
            reason = "length"
        tokens = self.tokenizer.convert_ids_to_tokens(ids)
        pairs = zip(tokens, logprobs, strict=True)
        return web.json_response(
            {
                "model": body["model"],
                "prompt_token_ids": prompt,
                "choices": [
                    {
                        "index": 0,
                        "message": message,
                        "finish_reason": reason,
                        "token_ids": ids,
                        "logprobs": {
                            "content": [
                                {"token": token, "logprob": value} for token, value in pairs
                            ]
                        },
                    }
                ],
                "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(ids)},
            }
        )

    async def _sample(self, prompt: list[int], max_tokens: int) -> tuple[list[int], list[float]]:
        """Sample one prompt in a batch with those that arrive at the same time."""
        if not self._prompts:
            self._batch = self._loop.create_task(self._sample_batch())
        place = len(self._prompts)
        self._prompts.append(prompt)
        self._max_tokens = max(self._max_tokens, max_tokens)
        assert self._batch is not None
        return (await self._batch)[place]

    async def _sample_batch(self) -> list[tuple[list[int], list[float]]]:
        async with self._lock:  # while one batch is sampled, the next one fills
            await asyncio.sleep(0.01)
            prompts, self._prompts = self._prompts, []
            max_tokens, self._max_tokens = self._max_tokens, 0
            return await asyncio.to_thread(sample, self.model, prompts, max_tokens)


def chat_message(text: str) -> dict[str, Any]:
    """Return an answer in chat shape, with its tool calls if all of them can be read."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    try:
        calls = [json.loads(found) for found in TOOL_CALL.findall(text)]
        functions = [
            {"name": call["name"], "arguments": json.dumps(call["arguments"])} for call in calls
        ]
    except (ValueError, KeyError, TypeError):
        return message
    if functions:
        message["content"] = text.split("<tool_call>")[0]
        message["tool_calls"] = [
            {"id": f"call_{number}", "type": "function", "function": function}
            for number, function in enumerate(functions)
        ]
    return message
