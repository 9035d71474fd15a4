"""What an environment deals in beside messages: its task, options, properties, and steps."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from gymcli.types import Message, StopReason

__all__ = ["EnvironmentOptions", "Properties", "Step", "Task"]


class Task(BaseModel):
    """The fields of a row that an environment needs, typed; other fields are kept as they are."""

    model_config = ConfigDict(extra="allow")


class EnvironmentOptions(BaseModel):
    """Options of an environment, given by `--env-arg`; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Properties(NamedTuple):
    """What kind of environment this is; shown by `gym envs`."""

    structure: Literal["single-step", "multi-step", "stateful", "multi-turn"] = "single-step"
    capability: str = ""
    domain: str = ""
    task_type: str = ""
    verification: str = ""


class Step(NamedTuple):
    """What an environment answers to one message of the model."""

    messages: list[Message]
    """What the model sees next; empty ends the episode."""
    reward: float | None = None
    """A reward for this turn, recorded in `step_rewards`."""
    stop_reason: StopReason | None = None
    """Ends the episode after these messages; `env_done` where the environment decides."""
