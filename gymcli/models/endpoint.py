"""The settings of an endpoint: address, key, dialect, timeouts and retries."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from pydantic import (
    AfterValidator,
    AllowInfNan,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
)

from gymcli.environment.addresses import checked_address
from gymcli.errors import UsageError
from gymcli.secrets import credentials, passwords
from gymcli.suggestions import argument_problems
from gymcli.types import JSONObject, LogprobMode, Usage

_Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class EndpointLimits(BaseModel):
    """The `limits` of a model in gym.toml; None: unknown, found out during the run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: _Rate | None = None
    tokens_per_minute: _Rate | None = None
    """Tokens of prompts and answers together."""
    max_concurrency: int | None = Field(default=None, ge=1)
    """The most requests in flight; `--concurrency` may be lower."""


DialectName = Literal["chat", "responses", "score", "pooling", "classify"]

SCALAR_DIALECTS = ("score", "pooling", "classify")
"""Wire formats of reward models, which answer a whole conversation with one number."""


def checked_base_url(value: str) -> str:
    """Return a base URL without its trailing slash.

    Raises:
        ValueError: It is not http(s), has no host, or carries a user, a query or a fragment.
    """
    return checked_address(value, name="the base URL", example="https://host/v1")


RESERVED_PARAMETERS = ("model", "messages", "input", "tools", "stream", "n", "store", "background")
"""Request fields that gymcli sets itself."""

TOKEN_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
"""Names of the same parameter."""

SENT_BACK = ("extra_content", "reasoning_details", "phase")
"""Fields of messages and calls that endpoints (Gemini, OpenRouter, OpenAI) want sent back."""


def _checked_params(params: dict[str, object]) -> dict[str, object]:
    for name, value in params.items():
        if name in RESERVED_PARAMETERS:
            raise ValueError(f"{name} is not a sampling parameter; gymcli sets it itself")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:  # TOML has dates, and numbers that are not finite
            raise ValueError(f"{name} must be a value that JSON has") from error
    return params


RequestParameters = Annotated[dict[str, object], AfterValidator(_checked_params)]
BaseURL = Annotated[str, AfterValidator(checked_base_url)]

_Seconds = Annotated[float, AllowInfNan(False)]


class EndpointOptions(BaseModel):
    """The options of any endpoint. Times are in seconds."""

    # pydantic's messages would otherwise show a key that is in the wrong place.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    dialect: DialectName = "chat"
    stream: bool = False
    emulate_tools: bool = False
    """Put tools into the prompt and read calls from the text."""
    send_reasoning: Literal["reasoning", "reasoning_content"] | None = None
    """The field in which earlier reasoning is sent back to the model; None: it is not sent."""
    send_fields: tuple[str, ...] = ()
    """More fields of its messages and calls to send back, in addition to `SENT_BACK`."""
    record_tokens: bool = False
    """Record the token ids of the policy's calls; ignored for the models of roles."""
    send_token_ids: bool = False
    """Send the recorded ids of the last answer back with it, as NeMo RL's server wants them."""
    logprob_mode: LogprobMode | None = None
    """What the server's log-probabilities are (`--logprobs-mode` of vLLM); None: not known."""
    params: RequestParameters = {}
    """Request parameters for requests that do not set them."""
    headers: dict[str, SecretStr] = {}
    query: dict[str, str] = Field(default={}, repr=False)
    """Added to the URL of every request; never shown, since some providers take keys here."""
    proxy: str | None = Field(default=None, repr=False)
    """`http://[user:password@]host:port`; never shown, because of the password."""
    ca_file: Path | None = None
    """PEM file of the authorities to trust, instead of the system's."""
    connect_timeout: _Seconds = Field(default=10.0, gt=0)
    total_timeout: _Seconds = Field(default=600.0, gt=0)
    """Limit for one try, its body included."""
    idle_timeout: _Seconds = Field(default=120.0, gt=0)
    """Limit between two chunks of an answer; in a stream, also before the first one."""
    max_attempts: int = Field(default=6, ge=1)
    """Tries of one request, the first included; 1: no retries.

    Answers that report overload (429, 503, 529) do not count.
    """
    retry_deadline: _Seconds = Field(default=900.0, ge=0)
    """No retry starts later than this after the first try.

    Waiting in the queue, or for an endpoint that is down, does not count.
    """
    max_retry_after: _Seconds = Field(default=60.0, ge=0)
    """The longest wait that an endpoint may ask for."""
    outage_deadline: _Seconds = Field(default=300.0, ge=0)
    """How long to wait for an endpoint that is down before the run is given up."""
    limits: EndpointLimits = EndpointLimits()
    prices: dict[Literal["prompt", "completion", "cached"], float] = {}
    """Price of a million tokens, in any currency; `cached` defaults to the price of `prompt`."""

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        # Checked here: a wrong header would otherwise fail only with the first request.
        for name, text in value.items():
            if not name or not _is_header_text(name) or " " in name or ":" in name:
                raise ValueError(f"{name!r} is not a valid name of an HTTP header")
            if not _is_header_text(text.get_secret_value()):
                raise ValueError(f"the value of {name!r} cannot be sent in an HTTP header")
        return value

    @field_validator("proxy")
    @classmethod
    def _check_proxy(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("the proxy must look like http://host:port")
        return value

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets in these options, which must not appear in a message or a file."""
        headers = ((name, text.get_secret_value()) for name, text in self.headers.items())
        return _longest_first(
            (*credentials((*headers, *self.query.items())), *passwords(self.proxy or ""))
        )


class Endpoint(EndpointOptions):
    """One model at one address, or at several replicas; its repr shows no secret."""

    name: str | None = None
    """The user's name for it: its table in gym.toml, or the model of a known address."""

    base_url: BaseURL
    """`http(s)://host[:port][/path]`; the dialect's own path comes after it."""
    replicas: tuple[BaseURL, ...] = ()
    """More addresses of the same model, which get the same key."""
    model: str = Field(min_length=1)
    api_key: SecretStr | None = None

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, **values: object) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                details = error.errors(include_url=False, include_input=False)
                problems = argument_problems(details, type(self).model_fields)
                # Without the cause, which shows values, and so keys.
                raise UsageError(f"endpoint: {problems}") from None

        # Then pydantic does not call it for a part of other options, whose error names the place.
        __init__.__pydantic_base_init__ = True

    @field_validator("api_key")
    @classmethod
    def _check_api_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _is_header_text(value.get_secret_value()):
            raise ValueError("the key has characters that no HTTP header can carry")
        return value

    @property
    def addresses(self) -> tuple[str, ...]:
        """The distinct addresses of the model."""
        return tuple(dict.fromkeys((self.base_url, *self.replicas)))

    def cost(self, usage: Usage) -> float | None:
        """Return the cost of tokens by the endpoint's prices; None if these are unknown."""
        prices = self.prices
        if "prompt" not in prices or "completion" not in prices:
            return None
        cached, uncached = usage.cached_tokens, usage.prompt_tokens
        if cached <= uncached:  # otherwise `prompt_tokens` does not include them
            uncached -= cached
        return math.fsum(
            (
                uncached * prices["prompt"] / 1e6,
                cached * prices.get("cached", prices["prompt"]) / 1e6,
                usage.completion_tokens * prices["completion"] / 1e6,
            )
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every text that must not appear in a message or a file, longest first."""
        key = () if self.api_key is None else (self.api_key.get_secret_value(),)
        return _longest_first((*super().secrets, *key))


def merged_params(*sources: JSONObject) -> JSONObject:
    """Merge request parameters; later ones win, even if a token limit has two names."""
    merged: JSONObject = {}
    for params in sources:
        if not TOKEN_LIMITS.isdisjoint(params):
            merged = {name: value for name, value in merged.items() if name not in TOKEN_LIMITS}
        merged.update(params)
    return merged


def max_answer_tokens(params: JSONObject) -> int | None:
    """Return a request's limit for the tokens of its answer; None if it has no limit."""
    names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
    limits = (params.get(name) for name in names)
    return next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)


def _longest_first(texts: Iterable[str]) -> tuple[str, ...]:
    """Sort secrets; those under 4 characters are dropped, since hiding them would garble texts."""
    return tuple(sorted({text for text in texts if len(text) >= 4}, key=len, reverse=True))


def _is_header_text(text: str) -> bool:
    return text.isascii() and text.isprintable()


def check_parameters(
    params: Mapping[str, object], endpoint: Endpoint | None, *, option: str = "--param"
) -> None:
    """Refuse numbers that are not finite, and secrets, which run.json must not hold."""
    secrets = endpoint.secrets if endpoint is not None else ()
    # As JSON, since parameters are searched in that form: quotes in a secret are escaped there.
    hidden = [msgspec.json.encode(secret)[1:-1] for secret in secrets]
    for name, value in params.items():
        if isinstance(value, float) and not math.isfinite(value):
            place = f"{option} {name}" if option != "--param" else "--" + name.replace("_", "-")
            raise UsageError(f"{place} {value}: must be a finite number")
        encoded = msgspec.json.encode({name: value})
        if any(secret in encoded for secret in hidden):
            raise UsageError(
                f"{option} {name}: holds a secret of the endpoint, which would be written to "
                "run.json; send secrets with --api-key-env or headers in gym.toml"
            )
