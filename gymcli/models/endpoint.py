"""Where a model is asked, and how: address, key, dialect, timeouts and retries."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    AllowInfNan,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
)

from gymcli.environment.addresses import checked_address
from gymcli.secrets import credentials, passwords
from gymcli.types import Usage

__all__ = [
    "SCALAR_DIALECTS",
    "BaseURL",
    "DialectName",
    "Endpoint",
    "EndpointLimits",
    "EndpointOptions",
    "checked_base_url",
]


_Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class EndpointLimits(BaseModel):
    """The `limits` of a model in gym.toml; None: unknown, to be found out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: _Rate | None = None
    tokens_per_minute: _Rate | None = None
    """Of prompts and answers together."""
    max_concurrency: int | None = Field(default=None, ge=1)
    """Requests under way at once; `--concurrency` may be less."""


DialectName = Literal["chat", "responses", "score", "pooling", "classify"]

SCALAR_DIALECTS = ("score", "pooling", "classify")
"""Wire formats of reward models: an answer is a number for a whole conversation."""


def checked_base_url(value: str) -> str:
    """Return a base URL without its trailing slash.

    Raises:
        ValueError: It is not http(s), has no host, or carries a user, a query or a fragment.
    """
    return checked_address(value, what="the base URL", example="https://host/v1")


SENT_BACK = ("extra_content", "reasoning_details", "phase")
"""Fields of messages and calls that endpoints want back: Gemini, OpenRouter, OpenAI."""

BaseURL = Annotated[str, AfterValidator(checked_base_url)]

_Seconds = Annotated[float, AllowInfNan(False)]


class EndpointOptions(BaseModel):
    """How an endpoint is asked, whichever it is. Times are seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    dialect: DialectName = "chat"
    stream: bool = False
    emulate_tools: bool = False
    """Tools are put into the prompt and calls are read from the text."""
    send_reasoning: Literal["reasoning", "reasoning_content"] | None = None
    """The field in which earlier reasoning goes back to the model; None: it does not."""
    send_fields: tuple[str, ...] = ()
    """Fields of its messages and calls that go back to the model, in addition to `SENT_BACK`."""
    headers: dict[str, SecretStr] = {}
    query: dict[str, str] = Field(default={}, repr=False)
    """Added to the address of every request; not shown, since some providers take keys here."""
    proxy: str | None = Field(default=None, repr=False)
    """`http://[user:password@]host:port`; not shown, for the password."""
    ca_file: Path | None = None
    """PEM file of the authorities to trust, in place of the system's."""
    connect_timeout: _Seconds = Field(default=10.0, gt=0)
    total_timeout: _Seconds = Field(default=600.0, gt=0)
    """For one try, its body included."""
    idle_timeout: _Seconds = Field(default=120.0, gt=0)
    """Between two chunks of an answer; where it is streamed, before the first one too."""
    max_attempts: int = Field(default=6, ge=1)
    """Tries of one request, the first one counted; with 1 nothing is tried again.

    Answers that say the endpoint has too much to do (429, 503, 529) do not count.
    """
    retry_deadline: _Seconds = Field(default=900.0, ge=0)
    """No further try of a request is planned later than this after its first one.

    Waiting in line for others, or for an endpoint that is gone, does not count.
    """
    max_retry_after: _Seconds = Field(default=60.0, ge=0)
    """The longest wait that an endpoint may ask for."""
    outage_deadline: _Seconds = Field(default=300.0, ge=0)
    """How long an endpoint that is gone is waited for, before the run is given up."""
    limits: EndpointLimits = EndpointLimits()
    prices: dict[Literal["prompt", "completion", "cached"], float] = {}
    """Of a million tokens, in any currency; without `cached` those cost as much as others."""

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
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
        """The texts of these options that must not appear in a message or a file."""
        headers = ((name, text.get_secret_value()) for name, text in self.headers.items())
        return _longest_first(
            (*credentials((*headers, *self.query.items())), *passwords(self.proxy or ""))
        )


class Endpoint(EndpointOptions):
    """One model behind one address; printing it shows no secret."""

    name: str | None = None
    """What the user calls it: its table of gym.toml, or the model of a known address."""

    base_url: BaseURL
    """`http(s)://host[:port][/path]`; the dialect's own path comes after it."""
    replicas: tuple[BaseURL, ...] = ()
    """More addresses of the same model; they get the same key."""
    model: str = Field(min_length=1)
    api_key: SecretStr | None = None

    @field_validator("api_key")
    @classmethod
    def _check_api_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _is_header_text(value.get_secret_value()):
            raise ValueError("the key has characters that no HTTP header can carry")
        return value

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every address of the model, each once."""
        return tuple(dict.fromkeys((self.base_url, *self.replicas)))

    def cost(self, usage: Usage) -> float | None:
        """Return what tokens cost by the endpoint's prices; None where these are not known."""
        prices = self.prices
        if "prompt" not in prices or "completion" not in prices:
            return None
        cached, uncached = usage.cached_tokens, usage.prompt_tokens
        if cached <= uncached:  # else the endpoint does not count them among the prompt's
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


def _longest_first(texts: Iterable[str]) -> tuple[str, ...]:
    """Sort secrets, without short ones: these are switches, and hiding them would garble texts."""
    return tuple(sorted({text for text in texts if len(text) >= 4}, key=len, reverse=True))


def _is_header_text(text: str) -> bool:
    return text.isascii() and text.isprintable()
