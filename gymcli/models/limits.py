"""What an endpoint allows a minute, where the user says so, and how that is kept to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gymcli.types import JSONObject, Usage

__all__ = ["Bucket", "Limits", "Rates", "max_answer_tokens"]

_MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""What a request calls the tokens that its answer may take."""

_MOST_TOKENS = 10**7
"""What is believed of that and of an answer; a slip of the pen must not stop everybody else."""

_FIRST_GUESS = 256.0
"""Tokens of an answer, until there was one."""

_Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Limits(BaseModel):
    """The `limits` of a model in gym.toml; None: unknown, to be found out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: _Rate | None = None
    tokens_per_minute: _Rate | None = None
    """Of prompts and answers together."""
    max_concurrency: int | None = Field(default=None, ge=1)
    """Requests under way at once; `--concurrency` may be less."""


class Bucket:
    """Lets so much pass a minute, evenly: not more at once than comes within a second.

    What is larger than that passes when nothing is owed, and is paid back by waiting.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self.per_minute = per_minute
        self._per_second = per_minute / 60
        self._size = max(1.0, self._per_second)
        self._level = self._size
        self._clock = clock
        self._filled_at = clock()

    def delay(self, amount: float) -> float:
        """Give the seconds until so much may pass."""
        missing = min(amount, self._size) - self._filled()
        # Sums of floats: a trillionth that is missing must not be waited for.
        return missing / self._per_second if missing > 1e-6 * self._size else 0.0

    def take(self, amount: float) -> None:
        """Let so much pass; the bucket may owe it."""
        self._level = self._filled() - amount

    def give_back(self, amount: float) -> None:
        """Take back what was not needed; less than nothing was needed on top."""
        self._level = min(self._size, self._filled() + amount)

    def _filled(self) -> float:
        now = self._clock()
        grown = self._level + (now - self._filled_at) * self._per_second
        self._level, self._filled_at = min(self._size, grown), now
        return self._level


class Rates:
    """The requests and tokens that an address allows a minute, as far as that is known."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self._answer_tokens = _FIRST_GUESS

    def lower(self, limits: Limits) -> None:
        """Keep to these limits as well; of two that differ, the lower one holds."""
        self._requests = self._lower(self._requests, limits.requests_per_minute)
        self._tokens = self._lower(self._tokens, limits.tokens_per_minute)

    def estimate(self, num_bytes: int, params: JSONObject) -> float:
        """Guess the tokens of a request: four bytes are one, and the answer is like the others."""
        longest = max_answer_tokens(params)
        answer = self._answer_tokens if longest is None else min(longest, _MOST_TOKENS)
        return num_bytes / 4 + answer

    def delay(self, tokens: float) -> float:
        """Give the seconds until a request of so many tokens may pass."""
        requests = self._requests.delay(1) if self._requests is not None else 0.0
        return max(requests, self._tokens.delay(tokens) if self._tokens is not None else 0.0)

    def take(self, tokens: float) -> None:
        """Let a request of so many tokens pass."""
        if self._requests is not None:
            self._requests.take(1)
        if self._tokens is not None:
            self._tokens.take(tokens)

    def give_back(self, tokens: float) -> None:
        """Take back the tokens of a request that came to nothing."""
        if self._tokens is not None:
            self._tokens.give_back(tokens)

    def correct(self, tokens: float, usage: Usage) -> None:
        """Correct a guess by what was used, where the endpoint says it."""
        used = min(usage.prompt_tokens + usage.completion_tokens, _MOST_TOKENS)
        if used:
            self.give_back(tokens - used)
            of_answer = min(usage.completion_tokens, _MOST_TOKENS)
            self._answer_tokens += 0.1 * (of_answer - self._answer_tokens)

    def _lower(self, bucket: Bucket | None, per_minute: float | None) -> Bucket | None:
        if per_minute is None or (bucket is not None and bucket.per_minute <= per_minute):
            return bucket
        return Bucket(per_minute, self._clock)


def max_answer_tokens(params: JSONObject) -> int | None:
    """Return the tokens that a request lets its answer take; None where it does not say."""
    asked = (params.get(name) for name in _MAX_TOKENS)
    return next((value for value in asked if isinstance(value, int) and value > 0), None)
