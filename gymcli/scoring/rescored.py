"""What scoring a record again gave, beside what it had."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from gymcli.environment import Environment, EnvironmentOptions, Task
from gymcli.store.lines import Line
from gymcli.types import AttemptKey, JSONObject, Rollout, Score, Timing, Verifier

__all__ = [
    "AttemptErrorText",
    "LineScores",
    "Numbers",
    "Rescored",
    "RescoredLines",
    "kept",
    "rescored",
    "unscored",
]


class AttemptErrorText(msgspec.Struct):
    """The class and text of the error that a verifier raised."""

    error_class: str
    message: str


class Numbers(msgspec.Struct):
    """What a verifier gives beside the reward."""

    components: dict[str, float]
    metrics: dict[str, float]


class Rescored(msgspec.Struct, kw_only=True):
    """What rescoring one line gave."""

    key: AttemptKey
    old_reward: float | None
    new_reward: float | None
    """None: the verifier failed, `error` says how."""
    old_reason: str = ""
    new_reason: str = ""
    numbers: tuple[Numbers, Numbers] | None = None
    """The old and the new ones; None where they are the same."""
    error: AttemptErrorText | None = None
    is_rescored: bool = True
    line: bytes = b""

    @property
    def is_changed(self) -> bool:
        """Whether the reward is another one now."""
        return self.is_rescored and self.old_reward != self.new_reward


class RescoredLines(msgspec.Struct, kw_only=True):
    """What rescoring several lines of one environment gave, in columns: a fraction of the time.

    All of them have an old score and a new one, and none of them gives its line anew. Those of a
    task stand together.
    """

    env: str
    task_ids: list[str]
    num_attempts: list[int]
    """Of each of the tasks."""
    attempts: list[int]
    old_rewards: array[float]
    new_rewards: array[float]
    places: array[int]
    """Of each among the lines as they came; empty where they came like this."""
    reasons: dict[int, tuple[str, str]] = {}
    """By place, the old and the new reason of those that have any."""
    numbers: dict[int, tuple[Numbers, Numbers]] = {}
    """By place, the old and the new numbers of those where they are not the same."""

    def __len__(self) -> int:
        """Give how many lines there are."""
        return len(self.new_rewards)

    @property
    def has_changes(self) -> bool:
        """Whether a reward may be another one now: equal bytes are equal rewards, and soon seen.

        Or another number is.
        """
        return bool(self.numbers) or self.old_rewards.tobytes() != self.new_rewards.tobytes()

    def __iter__(self) -> Iterator[Rescored]:
        """Give the result of each line, as they came."""
        task_ids = map(itertools.repeat, self.task_ids, self.num_attempts)
        rows: Iterable[tuple[int, str, int, float, float]] = zip(
            self.places or range(len(self)),
            itertools.chain.from_iterable(task_ids),
            self.attempts,
            self.old_rewards,
            self.new_rewards,
            strict=True,
        )
        for place, task_id, attempt, old_reward, new_reward in sorted(rows):
            old_reason, new_reason = self.reasons.get(place, ("", ""))
            yield Rescored(
                key=AttemptKey(self.env, task_id, attempt),
                old_reward=old_reward,
                new_reward=new_reward,
                old_reason=old_reason,
                new_reason=new_reason,
                numbers=self.numbers.get(place),
            )


class LineScores:
    """Takes the new scores of lines that stay as they are, and gives them as `RescoredLines`."""

    def __init__(self, env: str) -> None:
        self._env = env
        self._tasks: dict[str, int] = {}
        """Numbers them in the order of their first lines."""
        self._task_of: list[int] = []
        """Of each line, the number of its task."""
        self._attempts: list[int] = []
        self._old_rewards: list[float] = []
        self._new_rewards: list[float] = []
        self._reasons: dict[int, tuple[str, str]] = {}
        self._numbers: dict[int, tuple[Numbers, Numbers]] = {}

    def take(self, line: bytes, before: Rollout, score: Score, seconds: float) -> None:
        """Take a record that has a reward, and its new score.

        An alarm may ring in the middle of this: the new reward comes last, and says that all of
        the record is there.
        """
        assert before.reward is not None, "another kind of result says that there was none"
        if before.details or score.details:
            reasons = _reason(before.details), _reason(score.details)
            self._reasons[len(self._new_rewards)] = reasons
        if before.components != score.components or before.metrics != score.metrics:
            self._numbers[len(self._new_rewards)] = _numbers(before), _numbers(score)
        task_id = before.task_id
        task = self._tasks.get(task_id)
        if task is None:
            task = self._tasks[task_id] = len(self._tasks)
        self._task_of.append(task)
        self._attempts.append(before.attempt)
        self._old_rewards.append(before.reward)
        self._new_rewards.append(score.reward)

    def batch(self) -> RescoredLines:
        """Put the lines together by task, without one that was taken in part."""
        length = len(self._new_rewards)
        task_of, attempts = self._task_of[:length], self._attempts[:length]
        old_rewards, new_rewards = self._old_rewards[:length], self._new_rewards
        num_attempts = list(Counter(task_of).values())
        places: list[int] = []
        if sorted(task_of) != task_of:
            places = sorted(range(length), key=task_of.__getitem__)
            attempts = [attempts[place] for place in places]
            old_rewards = [old_rewards[place] for place in places]
            new_rewards = [new_rewards[place] for place in places]
        return RescoredLines(
            env=self._env,
            task_ids=list(self._tasks)[: len(num_attempts)],
            num_attempts=num_attempts,
            attempts=attempts,
            old_rewards=array("d", old_rewards),
            new_rewards=array("d", new_rewards),
            places=array("I", places),
            reasons={place: both for place, both in self._reasons.items() if place < length},
            numbers={place: both for place, both in self._numbers.items() if place < length},
        )


def kept(line: Line, rollout: Rollout, *, keeps_line: bool) -> Rescored:
    """Give a record that keeps its score, since its world cannot be replayed."""
    result = _of(rollout, rollout.reward)
    result.is_rescored = False
    if keeps_line:
        result.line = line.data if rollout.env_version else msgspec.json.encode(rollout)
    return result


def rescored(
    before: Rollout,
    scored: Rollout,
    *,
    environment: type[Environment[Task]],
    options: EnvironmentOptions,
    line: bytes | None,
) -> Rescored:
    """Give a record that was scored again.

    Args:
        before: The record.
        scored: The record with its new score.
        environment: Its environment.
        options: Those that it was scored with.
        line: Its line, where that is wanted anew; empty where nothing of it is to be kept.

    """
    result = _of(before, scored.reward)
    result.new_reason = _reason(scored.details)
    if before.components != scored.components or before.metrics != scored.metrics:
        result.numbers = _numbers(before), _numbers(scored)
    if line is not None:
        scored.env_options = options.model_dump(mode="json", exclude_defaults=True)
        # Rollouts of other programs stay without: their replay is not compared word by word.
        scored.env_version = environment.version if before.env_version else ""
        result.line = _new_line(line, before, scored)
    return result


class _Tail(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The end of a line: what a new score changes, from the first of it on."""

    timing: Timing = msgspec.field(default_factory=Timing)
    retries: dict[str, int] = {}
    reward: float | None = None
    components: dict[str, float] = {}
    metrics: dict[str, float] = {}
    answer: str | None = None
    details: JSONObject = {}
    verifier: Verifier = msgspec.field(default_factory=Verifier)


def _new_line(line: bytes, before: Rollout, scored: Rollout) -> bytes:
    """Give the line of a record with a new score; as it was where the score is the same.

    Where the line ends as one of ours does only its end is written anew: that takes half of the
    time, and keeps what a newer version may have put before it.
    """
    old, new = _tail(before, before.timing), _tail(scored, scored.timing)
    has_same_head = (
        before.env_options == scored.env_options and before.env_version == scored.env_version
    )
    if not (has_same_head and line.endswith(old)):
        return msgspec.json.encode(scored)
    if _tail(before, scored.timing) == new:  # it took another time, which is no news
        return line
    return line[: -len(old)] + new


def _tail(rollout: Rollout, timing: Timing) -> bytes:
    """Give the end of a record's line, from the comma before it.

    A comma and a quotation mark stand nowhere within a text: there the mark is escaped.
    """
    tail = _Tail(
        timing=timing,
        retries=rollout.retries,
        reward=rollout.reward,
        components=rollout.components,
        metrics=rollout.metrics,
        answer=rollout.answer,
        details=rollout.details,
        verifier=rollout.verifier,
    )
    return b"," + msgspec.json.encode(tail)[1:]


def unscored(before: Rollout, error: AttemptErrorText, *, keeps_line: bool) -> Rescored:
    """Give a record whose verifier failed."""
    result = _of(before, None)
    result.error = error
    if keeps_line:
        result.line = msgspec.json.encode(before.unscored())
    return result


def _of(before: Rollout, new_reward: float | None) -> Rescored:
    return Rescored(
        key=before.key,
        old_reward=before.reward,
        new_reward=new_reward,
        old_reason=_reason(before.details),
    )


def _reason(details: JSONObject) -> str:
    reason = details.get("reason")
    return reason if isinstance(reason, str) else ""


def _numbers(scored: Rollout | Score) -> Numbers:
    return Numbers(scored.components, scored.metrics)
