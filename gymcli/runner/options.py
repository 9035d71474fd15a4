"""What a collection is asked to do."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from gymcli.models.endpoint import Endpoint
from gymcli.store.manifest import Shard

__all__ = ["CollectOptions"]

T = TypeVar("T")


class CollectOptions(BaseModel):
    """The options of `gym collect` and of `gymcli.collect`, under the same names."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1)
    """A model's name at the endpoint; `local`, `local:PATH.gguf`; `oracle` plays gold answers.

    Without it, the endpoint's.
    """
    endpoint: Endpoint | None = None
    """Where the model is asked; None for `local` and `oracle`."""
    env: str | None = None
    """The environment of rows that name none."""
    env_args: dict[str, str] = {}
    """Options of environments: `key` or `env.key`."""
    out: Path | None = None
    """The run directory; None keeps nothing on disk."""
    fresh: bool = False
    """Start another run where `out` holds one."""
    repeats: int = Field(default=1, ge=1)
    """Attempts of each row."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first rows of each file, after `shuffle`."""
    task_ids: tuple[str, ...] = ()
    """Only these tasks."""
    shard: str | None = None
    """`I/N`, from `1/N` to `N/N`: of the tasks that the other options select, only this part."""
    shuffle: bool = False
    """Take the tasks in a random order, the same for one seed; holds all of them in memory."""
    concurrency: int = Field(default=64, ge=1)
    """Attempts under way at once."""
    engine: Literal["local", "ray"] = "local"
    """Where attempts run: in this process, or in the workers of a Ray cluster."""
    address: str | None = None
    """The Ray cluster that is joined; None: one that lives on this machine as long as the run."""
    num_workers: int | None = Field(default=None, ge=1)
    """Processes on that cluster, which share `concurrency`; None: one for each of its cores."""
    max_turns: int | None = Field(default=None, ge=1)
    """Model messages of an episode; over the row's and the environment's own limit."""
    max_episode_tokens: int | None = Field(default=None, ge=1)
    """Tokens of the policy in one episode, prompts included; it ends there and is scored."""
    max_episode_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The same in money, by the endpoint's prices."""
    max_episode_time: float = Field(default=3600.0, gt=0, allow_inf_nan=False)
    """Seconds of one episode; it ends there and is scored."""
    max_tokens_total: int | None = Field(default=None, ge=1)
    """Tokens of policy and roles over the whole run, earlier commands included; it stops there."""
    max_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The same in money; everything asked needs prices."""
    max_run_time: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Seconds after which no attempt is started."""
    grace: float = Field(default=30.0, ge=0, allow_inf_nan=False)
    """Seconds that attempts in flight may go on when the run stops early."""
    outage_deadline: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Seconds that an endpoint which is gone is waited for; over what each endpoint says itself."""
    no_retry: bool = False
    """Leave attempts that failed before as they are."""
    retry_crashed: bool = False
    """Try attempts again with which the process of a run died."""
    params: dict[str, object] = {}
    """Request parameters; they win over those of a row."""
    seed: int | None = None
    """Seeds environments and requests; None: environments by 0, requests not at all."""
    prompt: Path | None = None
    """A prompt template for rows of fields alone."""
    id_field: str | None = None
    """The field that holds a task's id, in place of `task_id`, `id`, `uuid`."""
    roles: dict[str, Endpoint | str] = {}
    """Models beside the policy: an endpoint, or `local`, `local:PATH.gguf`; `oracle` for the
    environment's own stand-in."""
    default_roles: dict[str, Endpoint | str] = {}
    """Models of roles that `roles` leaves out, for environments that have these roles."""
    missing_roles: dict[str, str] = Field(default={}, exclude=True)
    """Why roles that `default_roles` was to have are not there; told where they are needed."""
    role_params: dict[str, dict[str, object]] = {}
    """Request parameters of roles; they win over those that an environment sets."""
    id_by_file: bool = False
    """Ids count within their file."""
    secrets: tuple[SecretStr, ...] = Field(default=(), exclude=True)
    """Texts that are written nowhere, beside the keys of endpoints and what environment variables
    with a name such as API_TOKEN hold."""

    def with_outage_deadline(self) -> Self:
        """Give these options with the deadline set on every endpoint, where there is one."""
        seconds = self.outage_deadline
        if seconds is None:
            return self
        return self.model_copy(
            update={
                "endpoint": _patient(self.endpoint, seconds),
                "roles": {role: _patient(one, seconds) for role, one in self.roles.items()},
                "default_roles": {
                    role: _patient(one, seconds) for role, one in self.default_roles.items()
                },
            }
        )

    @field_validator("shard")
    @classmethod
    def _check_shard(cls, text: str | None) -> str | None:
        return None if text is None else str(Shard.parse(text))

    @model_validator(mode="before")
    @classmethod
    def _name_model(cls, data: dict[str, object]) -> dict[str, object]:
        endpoint = data.get("endpoint")
        if "model" not in data and isinstance(endpoint, Endpoint):
            return {**data, "model": endpoint.model}
        return data

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.endpoint is not None and self.endpoint.model != self.model:
            raise ValueError(f"the endpoint is one of {self.endpoint.model}, not of {self.model}")
        return self


def _patient(source: T, seconds: float) -> T:
    """Give an endpoint that is waited for as long as that when it is gone; a name as it is."""
    if not isinstance(source, Endpoint):
        return source
    return source.model_copy(update={"outage_deadline": seconds})
