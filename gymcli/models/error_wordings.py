"""Says what the errors of providers mean, by their codes and the start of their messages.

A wording is compared with each claim of an error: its code, its type and its message, after names
of error classes and phrases that gateways put before the provider's own message. Words further
inside a message mean nothing, since it may quote the prompt or the model.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from gymcli.models.chat import decode
from gymcli.models.endpoint import max_answer_tokens

Meaning: TypeAlias = Literal[
    "context overflow",
    "full cache",
    "filtered",
    "malformed call",
    "permanent",
    "hopeless",
    "rate limit",
    "server error",
]
"""What an error means:

- context overflow: the conversation no longer fits the model;
- full cache: the conversations that a server answers at the same time no longer fit its memory, and
  each of them gets this error, however short it is;
- filtered: a provider's filter refuses this conversation or its answer;
- malformed call: the endpoint cannot read what the model wrote;
- permanent: waiting does not help, although the status suggests that it does;
- hopeless: every other request would be refused too;
- rate limit, server error: as with the statuses 429 and 500, whatever the status is.
"""


WORDINGS: dict[Meaning, dict[str, str]] = {
    "context overflow": {
        # Codes and types.
        r"context_length_exceeded(:|$)": "OpenAI, Azure, Groq; crewAIInc/crewAI#701",
        r"exceed_context_size_error(:|$)": "llama.cpp; DraconDev/pi-goal-list-loop-audit#48",
        r"model_max_prompt_tokens_exceeded(:|$)": "GitHub Copilot; microsoft/vscode#289219",
        r"1261$": "Zhipu; zeroclaw-labs/zeroclaw#4124",
        r"litellm\.ContextWindowExceededError": "LiteLLM; entropy-research/Devon#88",
        # Messages.
        r"((this|the) (model|endpoint)'s )?maximum context length (is \d|has been exceeded)": (
            "OpenAI, vLLM, DeepSeek, OpenRouter, NVIDIA Dynamo, Cloudflare; vllm-project/vllm#20409"
        ),
        r"(your|the) (input|prompt|request) exceeds? the context window\b": (
            "OpenAI; dyad-sh/dyad#1672"
        ),
        r"input tokens exceed the configured limit of \d+ tokens(?! per)": (
            "OpenAI; archi-physics/archi#497"
        ),
        r"invalid '(messages|input)\[\d+\]\.content(\[\d+\]\.text)?': string too long": (
            "OpenAI; unverified"
        ),
        (
            r"'max_tokens' or 'max_completion_tokens' is too large: \d+\. "
            r"this model's maximum context"
        ): ("vLLM; UKGovernmentBEIS/inspect_ai#2634"),
        r"the ((de|en)coder )?prompt \(.{0,40}length \d+\) is (too long|longer than)": (
            "vLLM; vllm-project/vllm#12165"
        ),
        r"input length \(\d+\) exceeds (the )?model's maximum context length": (
            "vLLM; PrimeIntellect-ai/prime-rl#2535"
        ),
        r"you passed \d+ input .{0,80}the model's context length is only \d+ tokens": (
            "vLLM; unverified"
        ),
        # What is left for the answer; -1 and -2 are what a user writes for "no limit".
        r"max_(completion_)?tokens must be at least 1, got -(?![12]\b)\d+": (
            "vLLM; vllm-project/vllm#4667"
        ),
        r"(the )?input \(\d+ tokens\) is longer than the model's context length": (
            "SGLang, Together; QwenLM/Qwen3#1321"
        ),
        r"input length \(\d+ tokens\) exceeds the maximum allowed length": (
            "SGLang; sgl-project/sglang#4048"
        ),
        r"requested token count exceeds the model's maximum context length": (
            "SGLang, Cloudflare; anomalyco/opencode#25230"
        ),
        r"(the )?request (\(\d+ tokens\) )?exceeds the available context size": (
            "llama.cpp; openclaw/openclaw#64196"
        ),
        r"requested tokens (\(\d+\) )?exceed context window": (
            "llama-cpp-python; abetlen/llama-cpp-python#416"
        ),
        r"trying to keep the first \d+ tokens when context the overflows": (
            "LM Studio; lmstudio-ai/lmstudio-bug-tracker#546"
        ),
        r"the number of tokens to keep from the initial prompt is greater than the context": (
            "LM Studio; lmstudio-ai/lmstudio-bug-tracker#2205"
        ),
        r"cannot truncate prompt with n_keep \(\d+\) >= n_ctx \(\d+\)": (
            "LM Studio; anomalyco/opencode#11141"
        ),
        r"input length \d+ exceeds context length \d+": "LM Studio; lmstudio-ai/model-catalog#38",
        r"prompt too long; exceeded (max )?context length": "Ollama; earendil-works/pi#2626",
        r"(the )?input length exceeds (the )?(maximum )?context length": "Ollama; unverified",
        r"(input (validation )?error: )?`inputs` tokens \+ `max_new_tokens` must be <=": (
            "Text Generation Inference, Together; huggingface/text-generation-inference#628"
        ),
        r"(input (validation )?error: )?`inputs` must have less than \d+ tokens": (
            "Text Generation Inference; huggingface/text-generation-inference#695"
        ),
        (
            r"((encountered an error when fetching|cannot process) new request: )?"
            r"prompt length \(\d+\) (fills or )?exceeds (the )?max"
        ): ("TensorRT-LLM, Triton; triton-inference-server/tensorrtllm_backend#565"),
        r"prompt length \(\d+\) fills or exceeds": "NeMo RL; NVIDIA-NeMo/RL#3844",
        r"`?default_max_tokens`? \(-\d+\) must be greater than 0": (
            "TensorRT-LLM; ai-dynamo/dynamo#6605"
        ),
        r"prompt too long: \d+ tokens exceeds max_seq_len": "atlas; 0xBakeer/inference-atlas#184",
        r"prompt is too long(: \d+ tokens|\.?$)": "Anthropic; stackblitz/bolt.new#2449",
        r"the prompt is too long: \d+, model maximum context length": (
            "Fireworks; fw-ai/cookbook#134"
        ),
        r"input length and `?max_tokens`? exceed context limit": (
            "Anthropic, Amazon Bedrock; continuedev/continue#6080"
        ),
        r"(the )?input is too long( for requested model|\.?$)": (
            "Amazon Bedrock; continuedev/continue#9592"
        ),
        r"prompt tokens \(\d+\) exceed model maximum \(\d+\)": (
            "Amazon Bedrock; https://github.com/earendil-works/pi/blob/main/packages/ai/test/overflow.test.ts"
        ),
        r"(the )?input token count.{0,20} exceeds the maximum number of tokens(?! per)": (
            "Google; google-gemini/gemini-cli#6678"
        ),
        r"unable to submit request because the input token count is \d+": (
            "Google Vertex; google-gemini/gemini-cli#19727"
        ),
        r"this model's maximum prompt length is \d+": "xAI; cline/cline#3120",
        r"prompt contains \d+ tokens.{0,40}, too large for model with \d+": (
            "Mistral; https://github.com/earendil-works/pi/blob/main/packages/ai/src/utils/overflow.ts"
        ),
        r"prompt token count of \d+ exceeds the limit of \d+": (
            "GitHub Copilot; microsoft/vscode-copilot-release#6700"
        ),
        r"please reduce the length of the messages or completion": (
            "Groq, Cerebras; cline/cline#5140"
        ),
        r"your request exceeded model token limit: \d": "Moonshot; MoonshotAI/kimi-cli#2011",
        r"prompt (exceeds max length|超长)[.。]?$": "Zhipu; open-octo/octo-agent#2124",
        r"range of input length should be \[1, ?\d+\]": "DashScope; QwenLM/qwen-code#98",
        r"(invalid params, )?context window exceeds limit": "MiniMax; MiniMax-AI/MiniMax-M2#119",
        r"length of prompt_tokens \(\d+\) must be less than max_seq_len": (
            "SiliconFlow; langgenius/dify#19394"
        ),
        r"max_total_tokens \(\d+\) must be less than or equal to max_seq_len": (
            "SiliconFlow; continuedev/continue#10993"
        ),
        r"input length \d+ exceeds the maximum allowed input length of \d+ tokens": (
            "Poolside; earendil-works/pi#4943"
        ),
        r"the estimated number of input and maximum output tokens \(\d+\) exceeded this": (
            "Cloudflare; unverified"
        ),
        r"too many tokens: (total number of tokens|size limit exceeded)": (
            "Cohere; cohere-ai/sandbox-topically#4"
        ),
        r"total tokens of image and text exceed max message tokens": "Volcengine; unverified",
    },
    "full cache": {
        r"(the )?context size has been exceeded": (
            "llama.cpp, LM Studio; lmstudio-ai/lmstudio-bug-tracker#1757"
        ),
    },
    "filtered": {
        # Codes and types.
        r"content_filter$": "Azure, Moonshot; compl-ai/compl-ai#20",
        r"ResponsibleAIPolicyViolation$": "Azure; vibrantlabsai/ragas#649",
        r"content_policy_violation(:|$)": "OpenAI, OpenRouter; songquanpeng/one-api#737",
        r"data_?inspection_?failed(:|$)": "DashScope; camel-ai/owl#432",
        r"1301$": "Zhipu; langchain4j/langchain4j#1079",
        r"sensitive_words_detected(:|$)": "New API; openai/openai-cookbook#1224",
        r"(Input|Output)?\w{0,12}SensitiveContentDetected\b": "Volcengine; unverified",
        r"litellm\.ContentPolicyViolationError": "LiteLLM; BerriAI/litellm#16231",
        # Messages.
        r"the response was filtered due to the prompt triggering": (
            "Azure; openai/openai-python#331"
        ),
        r"invalid prompt: (your prompt was flagged|we've limited access)": (
            "OpenAI; microsoft/PyRIT#1463"
        ),
        r"your request was rejected as a result of our safety system": (
            "OpenAI; songquanpeng/one-api#737"
        ),
        r"([\w./:-]+ requires moderation .{0,100})?your input was flagged": (
            "OpenRouter; https://openrouter.ai/docs/api/reference/errors-and-debugging"
        ),
        r"(in|out)put( \w+)? data may contain inappropriate content": (
            "DashScope; QwenLM/qwen-code#3145"
        ),
        r"content exists risk": "DeepSeek; deepseek-ai/DeepSeek-V2#30",
        r"系统检测到输入或生成内容可能包含不安全或敏感内容": "Zhipu; langchain4j/langchain4j#1079",
        r"the request was rejected because it was considered high risk": (
            "Moonshot; TauricResearch/TradingAgents#1305"
        ),
        r"content violates usage guidelines": "xAI; UKGovernmentBEIS/inspect_ai#2267",
        r"output blocked by content filtering policy": "Anthropic; anthropics/claude-code#6195",
        r"(in|out)put new_sensitive": "MiniMax; esengine/DeepSeek-Reasonix#6818",
        r"violated guardrail policy": "LiteLLM with Amazon Bedrock; BerriAI/litellm#8239",
    },
    "malformed call": {
        r"tool_use_failed$": "Groq; groq/groq-typescript#28",
        r"json_validate_failed$": "Groq; thepersonalaicompany/amurex-backend#38",
        r"error parsing tool call: raw='": "Ollama; ollama/ollama#17638",
    },
    "permanent": {
        r"(image|audio|video) input is not supported": (
            "llama.cpp, with status 500; ggml-org/llama.cpp#15377"
        ),
        r"\w+ param requires --jinja": "llama.cpp, with status 500; defilantech/LLMKube#126",
        r"this server does not support": "llama.cpp, with status 500 or 501; unverified",
        r"insufficient_quota(:|$)": (
            "OpenAI, with status 429: no money left; Pythagora-io/gpt-pilot#340"
        ),
        r"request too large for": (
            "OpenAI and Groq: one request is above the rate; assafelovic/gpt-researcher#985"
        ),
    },
    "hopeless": {
        r"insufficient_quota(:|$)": "OpenAI: no money left; Pythagora-io/gpt-pilot#340",
        r"model_not_found(:|$)": "OpenAI; unverified",
        r"the model .{1,200} does not exist": "vLLM, SGLang; unverified",
        r"model \S{1,200} not found": "Ollama; netease-youdao/QAnything#555",
        r"[\w./:-]{1,200} is not a valid model id": "OpenRouter; RightNow-AI/openfang#697",
    },
    "rate limit": {
        r"rate_limit_(exceeded|error|reached)(:|$)": (
            "OpenAI, Anthropic; anthropics/claude-code#55789"
        ),
        r"(user)?rateLimitExceeded$": "Google; google-gemini/gemini-cli#2336",
        r"resource_exhausted$": "Google; google-gemini/gemini-cli#2020",
        r"(rate_limited|too_many_requests)$": (
            "GitHub Copilot, Azure; microsoft/vscode-copilot-release#5795"
        ),
        r"throttling(exception|\.\w+)?$": "Amazon Bedrock, DashScope; jin-bo/agentao#88",
        r"api rate limit exceeded": "GitHub; Shubhamsaboo/awesome-llm-apps#7",
        r"you have exceeded a secondary rate limit": "GitHub; hisxo/gitGraber#41",
        r"(sorry, )?you have been rate[- ]limited": (
            "GitHub Copilot; microsoft/vscode-copilot-release#5795"
        ),
        r"sorry, your request was rate-limited": (
            "GitHub Copilot; microsoft/vscode-copilot-release#2627"
        ),
        r"(api )?rate limit (was |has been |is )?(exceeded|reached)": (
            "many; RooCodeInc/Roo-Code#426"
        ),
        r"too many requests\b": "many; unverified",
    },
    "server error": {
        r"(internal_)?server_error$": "OpenAI, without a status; unverified",
        r"overloaded_error$": "Anthropic, without a status; unverified",
    },
}
"""The regular expressions for the start of a code, type or message that have a meaning.

Each with who sends it, and where it was read: `owner/repository#number` on GitHub, an address, or
`unverified`.
"""

TOO_LONG_ANSWERS = (
    # vLLM: "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum
    # context length is 8192 tokens and your request has 20 input tokens (9000 > 8192 - 20)."
    r"'max_tokens' or 'max_completion_tokens' is too large: (?P<answer>\d{1,12})\b"
    r".{0,40}context length is (?P<window>\d{1,12})",
    # vLLM: "You passed 20 input tokens and requested 9000 output tokens. However, the model's
    # context length is only 8192 tokens"
    r"you passed \d+ input tokens and requested (?P<answer>\d{1,12}) output tokens\b"
    r".{0,40}length is only (?P<window>\d{1,12})",
    # OpenAI and vLLM: "This model's maximum context length is 8192 tokens. However, you requested
    # 9020 tokens (20 in the messages, 9000 in the completion)."
    r"this model's maximum context length is (?P<window>\d{1,12}) tokens"
    r".{0,120} (?P<answer>\d{1,12}) in the completion",
    # OpenRouter: "This endpoint's maximum context length is 8192 tokens. However, you requested
    # about 9020 tokens (20 of text input, 9000 in the output)."
    r"this endpoint's maximum context length is (?P<window>\d{1,12}) tokens"
    r".{0,120} (?P<answer>\d{1,12}) in the output",
    # vLLM: "This model's maximum context length is 8192 tokens. However, you requested 9000 output
    # tokens and your prompt contains at least 20 input tokens"
    r"this model's maximum context length is (?P<window>\d{1,12}) tokens\. however, you requested "
    r"(?P<answer>\d{1,12}) output tokens",
    # SGLang: "Requested token count exceeds the model's maximum context length of 8192 tokens. You
    # requested a total of 9020 tokens: 20 tokens from the input messages and 9000 tokens for the
    # completion."
    r"requested token count exceeds the model's maximum context length of (?P<window>\d{1,12}) "
    r"tokens\..{0,120} (?P<answer>\d{1,12}) tokens for the completion",
    # Anthropic: "input length and `max_tokens` exceed context limit: 20 + 9000 > 8192"
    r"input length and `?max_tokens`? exceed context limit: \d+ \+ (?P<answer>\d{1,12}) > "
    r"(?P<window>\d{1,12})",
    # Text Generation Inference: "Input validation error: `inputs` tokens + `max_new_tokens` must be
    # <= 8192. Given: 20 `inputs` tokens and 9000 `max_new_tokens`"
    r"(input (validation )?error: )?`inputs` tokens \+ `max_new_tokens` must be <= "
    r"(?P<window>\d{1,12})\. given: \d+ `inputs` tokens and (?P<answer>\d{1,12}) `max_new",
    # Cerebras: "Please reduce the length of the messages or completion. Current length is 9020
    # while limit is 8192"
    r"please reduce the length of the messages or completion\. current length is \d+ while limit "
    r"is (?P<window>\d{1,12})",
    # SiliconFlow: "max_total_tokens (9020) must be less than or equal to max_seq_len (8192)"
    r"max_total_tokens \(\d+\) must be less than or equal to max_seq_len \((?P<window>\d{1,12})",
    # Moonshot: "Invalid request: Your request exceeded model token limit: 8192 (requested: 9020)"
    r"your request exceeded model token limit: (?P<window>\d{1,12})",
    # Cloudflare: "The estimated number of input and maximum output tokens (9020) exceeded this
    # model context window limit (8192)."
    r"the estimated number of input and maximum output tokens \(\d+\) exceeded this model context "
    r"window limit \((?P<window>\d{1,12})",
    # Cohere: "too many tokens: total number of tokens (prompt and prediction) cannot exceed 8192 -
    # received 9020."
    r"too many tokens: total number of tokens \(prompt and prediction\) cannot exceed "
    r"(?P<window>\d{1,12})",
)
"""Refusals of too many tokens: `window` is the model's limit, `answer` what the answer may take.

Where a message does not say what the answer may take, the request does.
"""

_PREFIXES = (
    # Few, since each is a place where all wordings are tried: a hostile body may repeat them.
    r"\s*+("
    # Names of error classes: "litellm.BadRequestError: OpenAIException - This model's maximum ..."
    r"[\w.]*(error|exception)(:| -)\s++"
    r"|<\d{3}> [\w.]+:\s++"  # DashScope: "<400> InternalError.Algo.InvalidParameter: Range of ..."
    r"|invalid request:\s++"  # Moonshot
    r"|provider returned error:\s++"  # OpenRouter
    r"|the model returned the following errors:\s++"  # Amazon Bedrock
    r"){0,8}"
)
"""What gateways and servers put before a provider's own words."""


_WRAPPED = re.compile(_PREFIXES + r"(?={)", re.IGNORECASE)
_QUOTED_CALL = re.compile(r"error parsing tool call: raw='(?P<call>.*)', err=", re.DOTALL)

_MAX_START = 2000
"""Characters of a claim that are looked at: a message may be as long as a conversation."""


def _starting_with(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile(f"{_PREFIXES}({'|'.join(patterns)})", re.IGNORECASE)


@functools.cache
def _patterns() -> dict[Meaning, re.Pattern[str]]:
    # Not compiled at import, which would make every command slower: few runs see an error.
    return {meaning: _starting_with(patterns) for meaning, patterns in WORDINGS.items()}


@functools.cache
def _too_long_answers() -> list[re.Pattern[str]]:
    return [_starting_with([pattern]) for pattern in TOO_LONG_ANSWERS]


def meanings_of(claims: Sequence[str], request: bytes = b"{}") -> set[Meaning]:
    """Return the meanings of the claims of an error that answers this request, by `WORDINGS`."""
    starts = [claim[:_MAX_START] for claim in claims]
    meanings = {name for name, pattern in _patterns().items() if any(map(pattern.match, starts))}
    for pattern in _too_long_answers():
        for match in filter(None, map(pattern.match, starts)):
            limit = match.groupdict().get("answer") or max_answer_tokens(decode(request)) or 0
            if int(limit) >= int(match["window"]):
                # The answer alone exceeds the window: a shorter conversation would not help.
                meanings = meanings - {"context overflow"} | {"permanent", "hopeless"}
    return meanings


def quoted_call(claims: Sequence[str]) -> str:
    """Return the malformed call that a message of Ollama quotes; empty if none does."""
    matches = (_QUOTED_CALL.match(claim) for claim in claims)
    return next((match["call"] for match in matches if match), "")


def start_of_wrapped(text: str) -> int | None:
    """Return where the JSON begins that a gateway wrote after names of error classes, if it did."""
    match = _WRAPPED.match(text[:_MAX_START])
    return match.end() if match is not None else None
