"""tokens.jsonl: the token ids of every call of the policy, as the engine saw and sampled them.

A line is a call. Its prompt is stored as a difference to the call before, so that the file grows
with the length of a conversation and not with its square. An attempt may be played several times;
its rollout names the play that counts.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from gymcli.errors import RunFileError
from gymcli.store.lines import lines_of, read_errors
from gymcli.store.rollout_files import ROLLOUTS, TOKENS, lines_with_structs
from gymcli.types import (
    JSON_ERRORS,
    JSONObject,
    LogprobMode,
    Rollout,
    Tokens,
    TokenSource,
)

TOKEN_SOURCES: Mapping[TokenSource, str] = {
    "vllm": "return_token_ids",
    "token_id": "return_tokens_as_token_ids and /tokenize",
    "llamacpp": "llama.cpp's log-probabilities, /apply-template and /tokenize",
    "nemo_gym": "NeMo Gym's fields",
    "model": "the policy itself",
}
"""Where token ids come from, in words."""

_STANDARD: JSONObject = {"temperature": 1, "top_p": 1}
_PENALTIES: JSONObject = {"presence_penalty": 0, "frequency_penalty": 0}
# A top_k of 0 is refused by SGLang, and was by vLLM: https://github.com/vllm-project/vllm/pull/17773
_VLLM: JSONObject = {**_STANDARD, **_PENALTIES, "top_k": -1, "min_p": 0, "repetition_penalty": 1}
_SENT: Mapping[TokenSource, JSONObject] = {
    "vllm": _VLLM,
    "token_id": _VLLM,
    # https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    "llamacpp": {**_STANDARD, **_PENALTIES, "top_k": 0, "min_p": 0, "repeat_penalty": 1},
    "nemo_gym": _STANDARD,
    "model": _STANDARD,
}
"""By source, the parameters to send. Others are unknown to it, and may be refused."""


def neutral_params(source: TokenSource) -> JSONObject:
    """Return the request parameters with which a server samples from the whole distribution.

    Servers have other defaults of their own and of the model.
    """
    return _SENT[source]


class TokenCall(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """One line of tokens.jsonl: a call of the policy.

    The whole prompt is the first `num_shared` ids of the call before (its prompt and its sample
    together) followed by `added`; see `prompts`. Calls with a `problem` have no prompt here, and
    the next call is compared with the last one without a problem.
    """

    env: str
    task_id: str
    attempt: int
    play: str
    call: int
    """Counted from 0 within the play: the position in the rollout's `calls`."""
    num_shared: int = 0
    added: list[int] = []
    sampled: list[int] = []
    logprobs: list[float] = []
    """The natural logarithm of each sampled id's probability."""
    finish_reason: str = ""
    sampling: JSONObject = {}
    """The parameters that the request set."""
    weight_version: str = ""
    source: TokenSource | None = None
    """None if the answer had no ids."""
    logprob_mode: LogprobMode = "unknown"
    problem: str = ""
    """Why the call cannot be trained on; empty if it can."""
    off_policy: str = ""
    """Why `logprobs` are not those of the distribution that was sampled from; empty if they are."""

    @property
    def kind_of_problem(self) -> str:
        """The problem with N for every number in it, which may differ from call to call."""
        return re.sub(r"\d+", "N", self.problem)


class PlayTokens:
    """Records the calls of one play of an attempt."""

    def __init__(self) -> None:
        self.play = secrets.token_hex(6)
        self.calls: list[TokenCall] = []
        self.last: Tokens | None = None
        """The ids of the last answer."""
        self._held: list[int] = []
        """The prompt and the sample of the last call without a problem."""

    def add(
        self, rollout: Rollout, tokens: Tokens | None, *, finish_reason: str, sampling: JSONObject
    ) -> None:
        """Record the next call of a rollout; None: the answer had no ids."""
        self.last = tokens
        call = TokenCall(
            env=rollout.env,
            task_id=rollout.task_id,
            attempt=rollout.attempt,
            play=self.play,
            call=len(self.calls),
            finish_reason=finish_reason,
            sampling=sampling,
        )
        self.calls.append(call)
        call.problem = problem_of(tokens)
        if tokens is None:
            return
        call.source = tokens.source
        call.logprob_mode = tokens.logprob_mode
        call.weight_version = tokens.weight_version
        call.off_policy = tokens.off_policy or _off_policy(sampling, tokens.logprob_mode)
        call.sampled, call.logprobs = tokens.sampled, _finite(tokens.logprobs)
        if call.problem:  # no prompt: nothing trains on it, and whole ones would add up
            return
        call.num_shared = num_common(self._held, tokens.prompt)
        call.added = tokens.prompt[call.num_shared :]
        self._held = tokens.prompt + tokens.sampled


def problem_of(tokens: Tokens | None) -> str:
    """Return why the ids of a call cannot be trained on, by the rules of OpenEnv's `check_turn`."""
    if tokens is None:
        return "the answer has no token ids"
    if tokens.problem:
        return tokens.problem
    if not tokens.prompt:
        return "the prompt is empty"
    if not tokens.sampled:
        return "no id was sampled"
    if min(tokens.prompt) < 0 or min(tokens.sampled) < 0:
        return "an id is negative"
    if len(tokens.logprobs) != len(tokens.sampled):
        # Without the numbers: problems are counted, and the line has both lists.
        return "there are not as many log-probabilities as sampled ids"
    if not all(map(math.isfinite, tokens.logprobs)):
        return "a log-probability is not finite"
    if max(tokens.logprobs) > 0:
        return "a log-probability is above 0"
    return ""


def _finite(logprobs: list[float]) -> list[float]:
    """Replace what JSON cannot write; the call has a problem then."""
    if all(map(math.isfinite, logprobs)):
        return logprobs
    return [value if math.isfinite(value) else 0.0 for value in logprobs]


_NEUTRAL: Mapping[str, tuple[float, ...]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "repeat_penalty": (1,),
}
"""Parameters that cut off or shift the distribution, and the values at which they do not."""

_CONSTRAINTS = (
    "response_format",
    "structured_outputs",
    "grammar",
    "json_schema",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "regex",
    "ebnf",
    "logit_bias",
)
"""Parameters that forbid ids; only processed log-probabilities are those of the others."""


def _off_policy(sampling: JSONObject, mode: LogprobMode) -> str:
    temperature = sampling.get("temperature", 1)
    for name, neutral in _NEUTRAL.items():
        if name in sampling and sampling[name] not in (None, *neutral):
            return f"{name} = {sampling[name]}"
    if mode == "processed":
        return ""
    for name in _CONSTRAINTS:
        if sampling.get(name) not in (None, {}, {"type": "text"}):
            return f"{mode} log-probabilities of an answer that {name} constrains"
    if temperature not in (None, 1):
        return f"{mode} log-probabilities at temperature {temperature}"
    return ""


def num_common(held: Sequence[int], prompt: Sequence[int]) -> int:
    if prompt[: len(held)] == held:
        return len(held)
    pairs = enumerate(zip(held, prompt, strict=False))
    return next((n for n, ids in pairs if ids[0] != ids[1]), min(len(held), len(prompt)))


def prompts(calls: Iterable[TokenCall]) -> list[list[int]]:
    """Return the whole prompt of each call of one play, in order; [] for calls with a problem.

    Raises:
        RunFileError: A call claims to share more ids than the call before has.
    """
    held: list[int] = []
    whole_prompts: list[list[int]] = []
    for call in calls:
        if call.problem:
            whole_prompts.append([])
            continue
        check_shared(call, len(held))
        whole_prompts.append(held[: call.num_shared] + call.added)
        held = whole_prompts[-1] + call.sampled
    return whole_prompts


def check_shared(call: TokenCall, num_held: int) -> None:
    """Raise RunFileError if a call claims to share more ids than the call before has."""
    if call.num_shared > num_held:
        raise RunFileError(
            f"{TOKENS}: attempt {call.attempt} of task {call.task_id} ({call.env}) is damaged: "
            f"call {call.call} shares {call.num_shared} ids, and the call before has only "
            f"{num_held}"
        )


_CALLS = msgspec.json.Decoder(TokenCall)
_WITHOUT_IDS = f'delete the key "play" of its line in {ROLLOUTS} to go on without its token ids'


class TokenPlay(msgspec.Struct):
    """The fields of a line that say where it belongs."""

    task_id: str
    attempt: int
    play: str


def tokens_file(run: Path) -> Path:
    if run.is_dir():
        return run / TOKENS
    if run.name == ROLLOUTS:
        return run.with_name(TOKENS)
    name = run.name.removesuffix(".gz").removesuffix(".zst").removesuffix(".jsonl")
    return run.with_name(f"{name}.{TOKENS}")


class TokenFile:
    """The token ids of a run, read when they are needed; a context manager.

    Memory holds the place of every play, not its ids.
    """

    def __init__(self, run: Path) -> None:
        self.path = tokens_file(run)
        self._plays: dict[str, tuple[int, int]] = {}
        """The first and the last byte of each play, whose lines are written together."""
        self._file = self.path.open("rb") if self.path.is_file() else None
        if self._file is None:
            return
        end = 0
        decoder = msgspec.json.Decoder(TokenPlay)
        with read_errors(self.path):
            for _, line in lines_with_structs(self.path, decoder, lines_of(self._file, self.path)):
                start, end = end, self._file.tell()
                self._plays[line.play] = self._plays.get(line.play, (start, end))[0], end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def lines(self, rollout: Rollout) -> bytes:
        """Return the lines of the play that counts; none if no ids were recorded.

        Raises:
            RunFileError: The rollout names a play that the file lacks.
        """
        if not rollout.play:
            return b""
        if self._file is None or rollout.play not in self._plays:
            play = f"{_name(rollout)}, play {rollout.play}"
            raise RunFileError(f"{self.path}: has no token ids of {play}; {_WITHOUT_IDS}")
        start, end = self._plays[rollout.play]
        self._file.seek(start)
        return self._file.read(end - start)

    def calls(self, rollout: Rollout) -> list[TokenCall]:
        """Return the calls of the play that counts, in order; none if no ids were recorded.

        Raises:
            RunFileError: The rollout names a play that the file lacks, or a line is damaged or
                missing.
        """
        try:
            calls = _CALLS.decode_lines(self.lines(rollout))
        except JSON_ERRORS as error:
            raise RunFileError(f"{self.path}: {_name(rollout)}: is damaged: {error}") from error
        # A prompt is a difference to the call before: without that one it would be another.
        if [call.call for call in calls] != list(range(len(calls))):
            raise RunFileError(
                f"{self.path}: {_name(rollout)}: a line is missing, or is there twice; "
                f"{_WITHOUT_IDS}"
            )
        return calls


def _name(rollout: Rollout) -> str:
    return f"attempt {rollout.attempt} of task {rollout.task_id} ({rollout.env})"
