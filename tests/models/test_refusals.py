"""What error bodies mean."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.models.api_errors import (
    CONTEXT_OVERFLOWS,
    HOPELESS,
    MODERATED,
    PERMANENT,
    TOO_LONG_ANSWERS,
    answer_claims,
    error_claims,
    error_text,
    error_words,
    is_context_overflow,
    is_hopeless,
    is_moderated,
    is_permanent,
)

OVERFLOWS = {
    "openai code": "context_length_exceeded: too much",
    "openai chat": (
        "This model's maximum context length is 4097 tokens. However, your messages resulted in "
        "4619 tokens. Please reduce the length of the messages."
    ),
    "openai responses": (
        "Your input exceeds the context window of this model. Please adjust your input."
    ),
    "vllm multimodal": (
        "The prompt (total length 25938) is too long to fit into the model (context length 4096)."
    ),
    "vllm v1": "Input length (265330) exceeds model's maximum context length (262144).",
    "vllm negative": "max_tokens must be at least 1, got -186.",
    "vllm passed": (
        "You passed 31745 input tokens and requested 1024 output tokens. However, the model's "
        "context length is only 32768 tokens, resulting in a maximum input length of 31744 tokens."
    ),
    "vllm answer below the window": (
        "'max_tokens' or 'max_completion_tokens' is too large: 8191. This model's maximum context "
        "length is 8192 tokens and your request has 20 input tokens (8191 > 8192 - 20)."
    ),
    "openai answer below the window": (
        "This model's maximum context length is 8192 tokens. However, you requested 8211 tokens "
        "(20 in the messages, 8191 in the completion). Please reduce the length."
    ),
    "sglang": "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
    "sglang request": (
        "Requested token count exceeds the model's maximum context length of 40960 tokens."
    ),
    "sglang limit": (
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)."
    ),
    "llama.cpp type": "exceed_context_size_error: no",
    "llama.cpp": "request (4390 tokens) exceeds the available context size (4096 tokens)",
    "llama.cpp 500": "Context size has been exceeded.",
    "llama-cpp-python": "Requested tokens (2285) exceed context window of 2048",
    "anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "anthropic sum": (
        "input length and `max_tokens` exceed context limit: 189136 + 20000 > 204648"
    ),
    "litellm": 'litellm.ContextWindowExceededError: AnthropicException - {"type":"error"}',
    "bedrock": "Input is too long for requested model.",
    "google": "The input token count (9000) exceeds the maximum number of tokens allowed (8192).",
    "xai": "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
    "tgi": "Input error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: ...",
}


TOO_LONG = {
    "vllm": (
        "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context "
        "length is 8192 tokens and your request has 20 input tokens (9000 > 8192 - 20)."
    ),
    "vllm passed": (
        "You passed 20 input tokens and requested 8192 output tokens. However, the model's "
        "context length is only 8192 tokens, resulting in a maximum input length of 0 tokens."
    ),
    "openai": (
        "This model's maximum context length is 8192 tokens. However, you requested 10520 tokens "
        "(1200 in the messages, 320 in the functions, and 9000 in the completion). Please reduce."
    ),
}


@pytest.mark.parametrize("text", OVERFLOWS.values(), ids=OVERFLOWS)
def test_is_context_overflow_knows(text):
    assert is_context_overflow(400, [text])
    assert is_context_overflow(500, [f"litellm.BadRequestError: OpenAIException - {text}"])
    assert not is_permanent([text])
    assert not is_hopeless([text])


@pytest.mark.parametrize("text", OVERFLOWS.values(), ids=OVERFLOWS)
@pytest.mark.parametrize(
    "quoted", ["Failed to answer: {}", '"{}"', "prompt: {}", "{{'input': '{}'}}"]
)
def test_words_that_a_message_quotes_say_nothing(text, quoted):
    claims = [quoted.format(text)]
    assert not is_context_overflow(400, claims)
    assert not is_context_overflow(500, claims)


@pytest.mark.parametrize("text", TOO_LONG.values(), ids=TOO_LONG)
def test_an_answer_as_long_as_the_window_is_no_overflow(text):
    """No conversation leaves room for it, so every request is refused."""
    claims = ["context_length_exceeded", text]
    assert not is_context_overflow(400, claims)
    assert is_permanent(claims)
    assert is_hopeless(claims)


def test_too_long_answers_are_each_shown_by_a_text():
    assert len(TOO_LONG_ANSWERS) == len(TOO_LONG)
    for pattern, text in zip(TOO_LONG_ANSWERS, TOO_LONG.values(), strict=True):
        assert re.match(pattern, text, re.IGNORECASE)


def test_context_overflows_are_each_shown_by_a_text():
    for pattern in CONTEXT_OVERFLOWS:
        found = [text for text in OVERFLOWS.values() if re.match(pattern, text, re.IGNORECASE)]
        assert found, pattern


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "max_tokens: 10000 > 4096, which is the maximum allowed number of output tokens"),
        (400, "max_tokens must be at least 1, got 0."),
        (400, "temperature must not be longer than it is"),
        (429, OVERFLOWS["openai chat"]),
        (401, OVERFLOWS["anthropic"]),
    ],
)
def test_is_context_overflow_leaves_other_refusals(status, text):
    assert not is_context_overflow(status, [text])


@pytest.mark.parametrize(
    ("patterns", "means", "texts"),
    [
        (
            PERMANENT,
            is_permanent,
            [
                "image input is not supported - hint: if this is unexpected, ...",
                "tools param requires --jinja flag",
                "This server does not support embeddings.",
                "insufficient_quota: You exceeded your current quota",
                "Request too large for gpt-4o in organization x on tokens per min (TPM)",
            ],
        ),
        (
            MODERATED,
            is_moderated,
            [
                'x/m requires moderation on p. Your input was flagged for "violence".',
                "content_policy_violation",
                "content_filter",
            ],
        ),
        (
            HOPELESS,
            is_hopeless,
            [
                "insufficient_quota: You exceeded your current quota",
                "model_not_found: no access",
                "The model `gpt-9` does not exist or you do not have access to it.",
                "model 'tiny' not found, try pulling it first",
                "tiny is not a valid model ID",
            ],
        ),
    ],
)
def test_tables_know(patterns, means, texts):
    """Every entry of a table is shown by one text, in order."""
    assert len(patterns) == len(texts)
    assert all(means([text]) for text in texts)
    assert not any(means([f"Failed to answer: {text}"]) for text in texts)
    assert not means(["The server is overloaded, please try again later."])


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"error": {"message": "no", "type": "bad", "code": None}}, "bad: no"),
        ({"error": {"message": "no", "type": "bad", "code": "worse"}}, "worse: no"),
        ({"error": {"message": "it is bad", "type": "bad"}}, "it is bad"),
        ({"error": {"message": "no", "code": 400}}, "no"),
        ({"error": "no"}, "no"),
        ({"object": "error", "message": "no", "code": 400}, "no"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"detail": [{"loc": ["body"], "msg": "missing"}]}, '[{"loc":["body"],"msg":"missing"}]'),
        ([{"error": {"message": "wrapped"}}], "wrapped"),
        ("just text", "just text"),
        ({"status": "sad"}, '{"status":"sad"}'),
        ({"error": {}}, '{"error":{}}'),
        ([1, 2], "[1,2]"),
    ],
)
def test_error_words_finds_the_message(payload, text):
    assert error_words(msgspec.json.encode(payload)) == text


@pytest.mark.parametrize(
    ("payload", "claims"),
    [
        ({"error": {"message": "no", "type": "bad", "code": "worse"}}, ["worse", "bad", "no"]),
        ({"error": {"message": "no", "code": 400, "param": "prompt is too long"}}, ["no"]),
        ({"error": "no"}, ["no"]),
        ({"detail": "Not Found"}, ["Not Found"]),
        ({"detail": [{"loc": ["body"], "msg": "missing", "input": "prompt is too long"}]}, []),
        ([{"error": {"message": "wrapped"}}], ["wrapped"]),
        (
            {"error": {"message": "no", "metadata": {"raw": '{"error": {"message": "why"}}'}}},
            ["no", "why"],
        ),
        ({"error": {"message": "no", "metadata": {"raw": "why"}}}, ["no", "why"]),
        ("just text", ["just text"]),
        ({"messages": ["prompt is too long"]}, []),
    ],
)
def test_error_claims_are_the_code_and_the_message(payload, claims):
    assert error_claims(msgspec.json.encode(payload)) == claims


@pytest.mark.parametrize(
    ("payload", "claims"),
    [
        (b'{"error": {"message": "no", "code": "worse"}}', ["worse", "no"]),
        (b'{"choices": [{"error": {"message": "no"}}]}', ["no"]),
        (b'{"object": "error", "message": "no"}', ["no"]),
        (b'{"choices": [], "message": "prompt is too long"}', []),
        (b'{"choices": [{"message": {"content": "prompt is too long', []),
        (b"prompt is too long", []),
        (b"", []),
    ],
)
def test_answer_claims_are_those_of_an_error_alone(payload, claims):
    assert answer_claims(payload) == claims


@pytest.mark.parametrize("payload", [b"<html>Bad gateway</html>", b'{"error": ', b"\xff\xfe"])
def test_error_words_gives_other_bodies_as_they_stand(payload):
    assert error_words(payload) == payload.decode("utf-8", "replace")


def test_error_text_is_empty_for_an_empty_body():
    assert error_text(b"") == ""


@given(st.binary(), st.text(min_size=4))
def test_error_text_is_one_short_printable_line(payload, secret):
    text = error_text(payload, [secret])
    assert len(text) <= 300
    assert text.isprintable()


@given(st.text(), st.text(alphabet="abcdef0123456789", min_size=8), st.text())
def test_error_text_never_shows_a_secret(before, secret, after):
    payload = msgspec.json.encode({"error": {"message": f"{before}{secret}{after}"}})
    assert secret not in error_text(payload, [secret])


def test_error_text_redacts_before_it_cuts():
    secret = "sk-" + "a" * 40
    text = error_text(("x" * 290 + secret).encode(), [secret])
    assert "sk-" not in text
