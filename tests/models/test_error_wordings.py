"""What the codes and messages of providers mean, and what only looks like one of them."""

import re
from typing import get_args

import msgspec
import pytest

from gymcli.errors import (
    AuthenticationError,
    ContextOverflowError,
    PromptFilteredError,
    RateLimitError,
    RequestRefusedError,
    ServerError,
)
from gymcli.mock import MockAnswer
from gymcli.mock.behaviours import refusal_of
from gymcli.models.error_wordings import (
    TOO_LONG_ANSWERS,
    WORDINGS,
    Meaning,
    meanings_of,
    quoted_call,
    start_of_wrapped,
)
from gymcli.types import Message, Request
from tests.models.asking import failure

TEXTS = {
    "context overflow": (
        "context_length_exceeded",
        "exceed_context_size_error",
        "model_max_prompt_tokens_exceeded",
        "1261",
        'litellm.ContextWindowExceededError: AnthropicException - {"type":"error"}',
        "This model's maximum context length is 4097 tokens. However, your messages resulted in "
        "4619 tokens. Please reduce the length of the messages.",
        "This endpoint's maximum context length is 32768 tokens. However, you requested about "
        "42832 tokens (42832 of text input).",
        "This model's maximum context length is 262144 tokens. However, you requested 0 output "
        "tokens and your prompt contains at least 262145 input tokens",
        "This model's maximum context length is 8192 tokens. However, you requested 8211 tokens "
        "(20 in the messages, 8191 in the completion). Please reduce the length.",
        "maximum context length is 204800 tokens. However, you requested about 309977 tokens",
        "AiError: This model's maximum context length is 131072 tokens.",
        "Your input exceeds the context window of this model. Please adjust your input.",
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
        "477469 tokens.",
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length "
        "10485760, but got a string with length 12000000 instead.",
        "'max_tokens' or 'max_completion_tokens' is too large: 8191. This model's maximum context "
        "length is 8192 tokens and your request has 20 input tokens (8191 > 8192 - 20).",
        "The prompt (total length 25938) is too long to fit into the model (context length 4096).",
        "The decoder prompt (length 16476) is longer than the maximum model length of 16384.",
        "Input length (265330) exceeds model's maximum context length (262144).",
        "You passed 31745 input tokens and requested 1024 output tokens. However, the model's "
        "context length is only 32768 tokens, resulting in a maximum input length of 31744 tokens.",
        "max_tokens must be at least 1, got -186.",
        "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
        "Requested token count exceeds the model's maximum context length of 202752 tokens. You "
        "requested a total of 202941 tokens: 170941 tokens from the input messages and 32000 "
        "tokens for the completion.",
        "request (4390 tokens) exceeds the available context size (4096 tokens)",
        "the request exceeds the available context size, try increasing it",
        "Requested tokens (2285) exceed context window of 2048",
        "Trying to keep the first 5012 tokens when context the overflows. However, the model is "
        "loaded with context length of only 4096 tokens, which is not enough.",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)",
        "Input length 1581 exceeds context length 1500",
        "prompt too long; exceeded max context length by 1203 tokens",
        "the input length exceeds the context length",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1244 "
        "`inputs` tokens and 1000 `max_new_tokens`",
        "Input validation error: `inputs` must have less than 1024 tokens. Given: 1168.",
        "Encountered an error when fetching new request: Prompt length (200) exceeds maximum input "
        "length (128). Set log level to info and check TRTGPTModel logs",
        "Cannot process new request: Prompt length (5056) exceeds maximum sequence length (2048)",
        "Prompt length (3100) fills or exceeds max_model_len (3072). No room for output tokens.",
        "Prompt length (3100) fills or exceeds this model's maximum context length (3072).",
        "`default_max_tokens` (-93) must be greater than 0, `default_max_tokens` (-93) = "
        "max_seq_len (16385) - `splited_prompt_len` (16478) - `query_token_len` (0)",
        "Prompt too long: 5152 tokens exceeds max_seq_len 2048 (leave room for output tokens)",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "The prompt is too long: 140000, model maximum context length: 131072",
        "input length and `max_tokens` exceed context limit: 189136 + 20000 > 204648",
        "The model returned the following errors: Input is too long for requested model.",
        "ValidationException: The input is too long",
        "prompt tokens (330095) exceed model maximum (278528) for base model abc",
        "The input token count (9000) exceeds the maximum number of tokens allowed (8192).",
        "Unable to submit request because the input token count is 1251952 but model only supports "
        "up to 1048576.",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum "
        "context length",
        "prompt token count of 146270 exceeds the limit of 128000",
        "Please reduce the length of the messages or completion. Current length is 42328 while "
        "limit is 40000",
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
        "Prompt exceeds max length",
        "Prompt 超长",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]",
        "invalid params, context window exceeds limit (2013)",
        "length of prompt_tokens (68957) must be less than max_seq_len (65536).",
        "max_total_tokens (33802) must be less than or equal to max_seq_len (32768)",
        "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
        "The estimated number of input and maximum output tokens (9000) exceeded this model "
        "context window limit (8192).",
        "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - "
        "received 6354.",
        "Total tokens of image and text exceed max message tokens",
    ),
    "full cache": ("Context size has been exceeded.",),
    "filtered": (
        "content_filter",
        "ResponsibleAIPolicyViolation",
        "content_policy_violation",
        "data_inspection_failed",
        "DataInspectionFailed",
        "1301",
        "sensitive_words_detected",
        "InputTextSensitiveContentDetected",
        "litellm.ContentPolicyViolationError: AzureException - no",
        "The response was filtered due to the prompt triggering Azure OpenAI's content management "
        "policy. Please modify your prompt and retry.",
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
        "Invalid prompt: we've limited access to this content for safety reasons.",
        "Your request was rejected as a result of our safety system.",
        'x/m requires moderation on p. Your input was flagged for "violence".',
        "<400> InternalError.Algo.DataInspectionFailed: Input text data may contain inappropriate "
        "content.",
        "Input data may contain inappropriate content.",
        "Content Exists Risk",
        "系统检测到输入或生成内容可能包含不安全或敏感内容",
        "The request was rejected because it was considered high risk",
        "Content violates usage guidelines. Team: t, Failed check: SAFETY_CHECK_TYPE_BIO",
        "Output blocked by content filtering policy",
        "input new_sensitive (1026)",
        "Violated guardrail policy",
    ),
    "malformed call": (
        "tool_use_failed",
        "json_validate_failed",
        "error parsing tool call: raw='ls -R\n', err=invalid character 'l'",
    ),
    "permanent": (
        "image input is not supported - hint: if this is unexpected, you may need the mmproj",
        "tools param requires --jinja flag",
        "This server does not support embeddings.",
        "insufficient_quota: You exceeded your current quota",
        "Request too large for gpt-4o in organization x on tokens per min (TPM)",
    ),
    "hopeless": (
        "insufficient_quota: You exceeded your current quota",
        "model_not_found: no access",
        "The model `gpt-9` does not exist or you do not have access to it.",
        "model 'tiny' not found, try pulling it first",
        "tiny is not a valid model ID",
    ),
    "rate limit": (
        "rate_limit_exceeded",
        "userRateLimitExceeded",
        "RESOURCE_EXHAUSTED",
        "rate_limited",
        "ThrottlingException",
        "Throttling.RateQuota",
        "API rate limit exceeded for user ID 1.",
        "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
        "Sorry, you have been rate-limited. Please wait a moment before trying again.",
        "Sorry, your request was rate-limited. Please wait 1 minutes before trying again.",
        "Rate limit reached for model m",
        "Too many requests. Please slow down.",
    ),
    "server error": ("server_error", "overloaded_error"),
}

TOO_LONG = (
    "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context "
    "length is 8192 tokens and your request has 20 input tokens (9000 > 8192 - 20).",
    "You passed 20 input tokens and requested 8192 output tokens. However, the model's context "
    "length is only 8192 tokens, resulting in a maximum input length of 0 tokens.",
    "This model's maximum context length is 8192 tokens. However, you requested 10520 tokens "
    "(1200 in the messages, 320 in the functions, and 9000 in the completion). Please reduce.",
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 141607 "
    "tokens (10535 of text input, 131072 in the output). Please reduce the length of either one.",
    "This model's maximum context length is 8192 tokens. However, you requested 9000 output tokens "
    "and your prompt contains at least 20 input tokens, for a total of at least 9020 tokens.",
    "Requested token count exceeds the model's maximum context length of 8192 tokens. You "
    "requested a total of 9020 tokens: 20 tokens from the input messages and 9000 tokens for the "
    "completion.",
    "input length and `max_tokens` exceed context limit: 20 + 9000 > 8192, decrease input length",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 20 "
    "`inputs` tokens and 9000 `max_new_tokens`",
    "Please reduce the length of the messages or completion. Current length is 9020 while limit is "
    "8192",
    "max_total_tokens (9020) must be less than or equal to max_seq_len (8192)",
    "Your request exceeded model token limit: 8192 (requested: 9020)",
    "The estimated number of input and maximum output tokens (9020) exceeded this model context "
    "window limit (8192).",
    "too many tokens: total number of tokens (prompt and prediction) cannot exceed 8192 - received "
    "9020.",
)


def test_every_meaning_is_shown():
    assert set(TEXTS) == set(WORDINGS) == set(get_args(Meaning))


def test_every_wording_is_shown_by_a_text_and_has_a_source():
    origin = re.compile(r".+; (unverified|https://\S+|[\w.-]+/[\w.-]+#\d+)")
    for meaning, origins in WORDINGS.items():
        for wording, sender_and_source in origins.items():
            pattern = re.compile(f"(.*(: | - ))?({wording})", re.IGNORECASE)
            assert any(map(pattern.match, TEXTS[meaning])), wording
            assert origin.fullmatch(sender_and_source), wording


def test_every_text_has_its_meaning():
    for meaning, texts in TEXTS.items():
        assert [text for text in texts if meaning not in meanings_of([text])] == []


@pytest.mark.parametrize("meaning", ["context overflow", "filtered"])
def test_an_overflow_and_a_filter_mean_nothing_else(meaning):
    assert [text for text in TEXTS[meaning] if meanings_of([text]) != {meaning}] == []


@pytest.mark.parametrize("meaning", ["context overflow", "filtered"])
def test_names_of_error_classes_before_a_message_change_nothing(meaning):
    messages = [text for text in TEXTS[meaning] if " " in text]
    prefix = "litellm.BadRequestError: OpenAIException - "
    assert [text for text in messages if meaning not in meanings_of([prefix + text])] == []


@pytest.mark.parametrize(
    "quoted", ["Failed to answer: {}", '"{}"', "prompt: {}", "{{'text': '{}'}}"]
)
def test_words_that_a_message_quotes_mean_nothing(quoted):
    texts = [text for texts in TEXTS.values() for text in texts]
    assert [text for text in texts if meanings_of([quoted.format(text)])] == []


def test_an_answer_as_long_as_the_window_is_no_overflow(subtests):
    """No conversation leaves room for such an answer, so every request is refused."""
    assert len(TOO_LONG) == len(TOO_LONG_ANSWERS)
    for pattern, text in zip(TOO_LONG_ANSWERS, TOO_LONG, strict=True):
        with subtests.test(text):
            assert re.match(pattern, text, re.IGNORECASE)
            claims = ["context_length_exceeded", text]
            assert meanings_of(claims, b'{"max_tokens": 8192}') == {"permanent", "hopeless"}
            if "(?P<answer>" not in pattern:
                assert meanings_of(claims, b'{"max_tokens": 8191}') == {"context overflow"}
                assert meanings_of(claims) == {"context overflow"}


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize(("asked", "kind"), [(8192, RequestRefusedError), (10, None)])
def test_the_request_says_how_long_its_answer_may_be(dialect, asked, kind):
    text = "max_total_tokens (9020) must be less than or equal to max_seq_len (8192)"
    request = Request(messages=[Message(role="user", content="x")], params={"max_tokens": asked})
    error = failure(lambda _: refusal_of(400, text), request, dialect=dialect)
    assert type(error) is (kind or ContextOverflowError)
    assert error.is_hopeless is (kind is not None)


LOOK_ALIKES = [
    # Rates.
    (400, "Your request exceeded model token limit per minute", None),
    (400, "The input token count exceeds the maximum number of tokens per minute", None),
    (400, "Your request exceeds the context windows of this plan", None),
    (400, "Prompt exceeds max length of a title", None),
    (
        429,
        "This model's maximum context length is 8192 tokens, and you are too fast",
        RateLimitError,
    ),
    (429, "Too many tokens, please wait before trying again.", RateLimitError),
    (403, "Too many requests, your tokens are used up", RateLimitError),
    (400, "rate_limit_exceeded: on input tokens per minute (TPM)", RateLimitError),
    (413, "Request too large for model `m` on tokens per minute (TPM)", RequestRefusedError),
    (400, "This request would exceed the rate limit of 40000 input tokens per minute", None),
    # Money and keys.
    (402, "You requested up to 8192 tokens, but can only afford 1200", None),
    (403, "Key limit exceeded: context window of this key is used up", AuthenticationError),
    (401, "prompt is too long: 210000 tokens > 200000 maximum", AuthenticationError),
    (404, "prompt is too long: 210000 tokens > 200000 maximum", None),
    # The longest answer.
    (400, "max_tokens: 10000 > 4096, which is the maximum allowed number of output tokens", None),
    (400, "max_tokens must be at least 1, got 0.", None),
    (400, "max_tokens must be at least 1, got -1.", None),
    (400, "max_completion_tokens must be at least 1, got -2.", None),
    (
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum output "
        "length is 4096 tokens.",
        None,
    ),
    (
        400,
        "max_tokens is too large: 32000. This model supports at most 4096 completion tokens",
        None,
    ),
    (400, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", None),
    (400, "Range of max_tokens should be [1, 8192]", None),
    (400, "The maximum tokens you requested exceeds the model limit of 32768", None),
    (400, "max_completion_tokens is too large: 262144. This model supports at most 256000", None),
    # Other lengths.
    (400, "Invalid 'tools[0].function.name': string too long. Expected at most 64", None),
    (400, "Invalid 'tools[0].function.description': string too long. Expected at most 1024", None),
    (400, "Invalid 'user': string too long. Expected a string with maximum length 64", None),
    (400, "The tool name is too long: at most 64 characters", None),
    (400, "Prompt is too long: at most 4000 characters", None),
    (400, "stop: at most 4 sequences, and each may have 16 tokens", None),
    # The memory that all conversations of a local server share.
    (400, "Context size has been exceeded.", ServerError),
    (500, "Context size has been exceeded.", ServerError),
    # Media.
    (400, "At most 1 image(s) may be provided in one request.", None),
    (400, "You have exceeded the maximum number of images (20)", None),
    (400, "messages.1.content.0.image.source.base64: image exceeds 5 MB maximum", None),
    (413, "Request Entity Too Large", None),
    (413, "request_too_large: Request exceeds the maximum size", None),
    # Words further inside, and words of others.
    (400, "Cannot answer: maximum context length is 10 tokens", None),
    (422, "Wrong input: prompt is too long", None),
    (400, "The tool said: Input is too long for requested model.", None),
    (400, "Unknown parameter: context_length_exceeded", None),
    (400, "context_length_exceeded_policy must be one of truncate, error", None),
    (400, "temperature must not be longer than it is", None),
    (500, "Failed at: Context size has been exceeded.", ServerError),
]


@pytest.mark.parametrize(("status", "text", "kind"), LOOK_ALIKES)
def test_a_look_alike_is_no_context_overflow(status, text, kind):
    error = failure(lambda _: refusal_of(status, text), max_attempts=1)
    assert type(error) is (kind or RequestRefusedError)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529])
@pytest.mark.parametrize("page", ["{}", "<html><body>{}</body></html>", '"{}"', "[]{}"])
def test_a_page_of_a_proxy_is_never_classified_by_its_words(status, page, subtests):
    for meaning in ("context overflow", "filtered", "malformed call", "permanent", "hopeless"):
        text = TEXTS[meaning][-1]
        refusal = MockAnswer(status=status, body=page.format(text))
        with subtests.test(meaning):
            error = failure(lambda _, refusal=refusal: refusal, max_attempts=1)
            assert type(error) is ServerError
            assert not error.is_hopeless


def encoded(body) -> str:
    return msgspec.json.encode(body).decode()


GROQ = {"error": {"message": "See 'failed_generation'.", "code": "tool_use_failed"}}
BODIES = {
    "openai": (400, {"error": {"message": "m", "code": "context_length_exceeded"}}, True),
    "vllm, older": (
        400,
        {"object": "error", "message": "This model's maximum context length is 8 tokens."},
        True,
    ),
    "lm studio": (400, {"error": "Cannot truncate prompt with n_keep (9) >= n_ctx (8)"}, True),
    "lm studio, 500": (500, {"error": "Cannot truncate prompt with n_keep (9) >= n_ctx (8)"}, True),
    "llama.cpp": (500, {"error": {"code": 500, "type": "exceed_context_size_error"}}, True),
    "fastapi": (422, {"detail": {"error": {"message": "Prompt is too long"}}}, True),
    "siliconflow": (
        400,
        {
            "code": 20015,
            "message": "length of prompt_tokens (9) must be less than max_seq_len (8).",
        },
        True,
    ),
    "google": (
        400,
        [
            {
                "error": {
                    "message": "The input token count (9000) exceeds the maximum number of tokens",
                    "code": 400,
                }
            }
        ],
        True,
    ),
    "openrouter": (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "metadata": {"raw": encoded({"message": "Input is too long for requested model."})},
            }
        },
        True,
    ),
    "litellm": (
        400,
        {
            "error": {
                "message": "litellm.BadRequestError: Fireworks_aiException - "
                + encoded(
                    {"error": {"message": "The prompt is too long: 9, model maximum context"}}
                )
                + "\nReceived Model Group=m"
            }
        },
        False,
    ),
    "litellm, fireworks": (
        400,
        {
            "error": {
                "message": "litellm.BadRequestError: Fireworks_aiException - "
                + encoded(
                    {
                        "error": {
                            "message": "The prompt is too long: 9, model maximum context length"
                        }
                    }
                )
                + "\nReceived Model Group=m"
            }
        },
        True,
    ),
    "quoted object": (400, {"error": {"message": '{"message": "Prompt is too long"}'}}, False),
}


@pytest.mark.parametrize(("status", "body", "is_overflow"), BODIES.values(), ids=BODIES)
def test_the_claims_of_a_provider_are_found(status, body, is_overflow):
    refusal = MockAnswer(status=status, body=encoded(body))
    error = failure(lambda _: refusal, max_attempts=1)
    assert isinstance(error, ContextOverflowError) is is_overflow


AZURE = {
    "error": {
        "message": "The response was filtered due to the prompt triggering a policy.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation"},
    }
}
FILTERS = {
    "azure": (400, AZURE),
    "azure, inner code": (
        400,
        {"error": {"message": "no", "innererror": AZURE["error"]["innererror"]}},
    ),
    "dashscope": (
        400,
        {"error": {"code": "data_inspection_failed", "message": "Input data may contain it."}},
    ),
    "deepseek": (
        400,
        {"error": {"message": "Content Exists Risk", "code": "invalid_request_error"}},
    ),
    "deepseek, older": (400, {"detail": "Content Exists Risk"}),
    "zhipu": (400, {"error": {"code": "1301", "message": "系统检测到"}}),
    "moonshot": (400, {"error": {"code": 400, "message": "m", "type": "content_filter"}}),
    "xai": (403, {"code": "no permission", "error": "Content violates usage guidelines. Team: t"}),
    "openrouter": (
        403,
        {"error": {"message": "m requires moderation on p. Your input was flagged"}},
    ),
    "minimax": (500, {"error": {"message": "input new_sensitive (1026)", "code": 500}}),
    "litellm with bedrock": (400, {"error": {"message": {"error": "Violated guardrail policy"}}}),
    "minimax, 200": (
        200,
        {"base_resp": {"status_code": 1026, "status_msg": "input new_sensitive"}},
    ),
    "gemini, 200": (200, {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}),
    "azure, 200": (200, AZURE),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "body"), FILTERS.values(), ids=FILTERS)
def test_a_filtered_prompt_is_known(status, body, stream):
    text = f"data: {encoded(body)}\n\ndata: [DONE]\n\n" if stream else encoded(body)
    headers = {"Content-Type": "text/event-stream"} if stream else {}
    refusal = MockAnswer(status=status, body=text, headers=headers)
    error = failure(lambda _: refusal, max_attempts=2)
    assert type(error) is PromptFilteredError
    assert "check what the key allows" not in str(error)


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (401, "content_filter", AuthenticationError),
        (429, "content_filter", RateLimitError),
        (400, "content_filter_policy is an unknown parameter", RequestRefusedError),
        (400, "content_filter: Extra inputs are not permitted", RequestRefusedError),
        (400, "Invalid prompt: expected a list of messages", RequestRefusedError),
        (400, "The tool said: Content Exists Risk", RequestRefusedError),
        (403, "Your key does not allow content", AuthenticationError),
    ],
)
def test_a_look_alike_is_no_filter(status, text, kind):
    assert type(failure(lambda _: refusal_of(status, text), max_attempts=1)) is kind


def test_a_wording_is_looked_for_at_the_start_alone_however_long_a_message_is():
    assert not meanings_of(["error: " * 200_000])
    text = "prompt is too long: 210000 tokens " + "x" * 1_000_000
    assert meanings_of([text]) == {"context overflow"}


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ('{"a": 1}', 0),
        ('x.Error: YException - {"a": 1}', 22),
        ('prompt: {"a": 1}', None),
        ("", None),
    ],
)
def test_start_of_wrapped(text, start):
    assert start_of_wrapped(text) == start


def test_quoted_call():
    assert quoted_call(["x", "error parsing tool call: raw='a\n', err=', err=b"]) == "a\n', err="
    assert quoted_call(["x"]) == ""
