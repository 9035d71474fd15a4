"""What scoring a record again gave, beside what it had."""

from __future__ import annotations

import msgspec

from gymcli.environment import Environment, EnvironmentOptions, Task
from gymcli.store.lines import Line
from gymcli.types import AttemptKey, Rollout

__all__ = ["AttemptErrorText", "Rescored", "kept", "rescored", "unscored"]


class AttemptErrorText(msgspec.Struct):
    """The class and text of the error that a verifier raised."""

    error_class: str
    message: str


class Rescored(msgspec.Struct, kw_only=True):
    """What rescoring one line gave."""

    key: AttemptKey
    old_reward: float | None
    new_reward: float | None
    """None: the verifier failed, `error` says how."""
    old_reason: str = ""
    new_reason: str = ""
    error: AttemptErrorText | None = None
    is_rescored: bool = True
    line: bytes = b""

    @property
    def is_changed(self) -> bool:
        """Whether the reward is another one now."""
        return self.is_rescored and self.old_reward != self.new_reward


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
    keeps_line: bool,
) -> Rescored:
    """Give a record that was scored again."""
    result = _of(before, scored.reward)
    result.new_reason = _reason(scored)
    if keeps_line:
        scored.env_options = options.model_dump(mode="json", exclude_defaults=True)
        # Rollouts of other programs stay without: their replay is not compared word by word.
        scored.env_version = environment.version if before.env_version else ""
        result.line = msgspec.json.encode(scored)
    return result


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
        old_reason=_reason(before),
    )


def _reason(rollout: Rollout) -> str:
    reason = rollout.details.get("reason")
    return reason if isinstance(reason, str) else ""
