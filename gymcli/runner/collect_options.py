"""The options of a collection, validated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    SecretStr,
    model_validator,
)

from gymcli.command_line import CommandOption, Heading, RoleParamsOption, not_negative, positive
from gymcli.models.endpoint import Endpoint
from gymcli.models.in_process import PolicyModel
from gymcli.store.manifest import BenchmarkRecord
from gymcli.tasks.task_options import TaskOptions

T = TypeVar("T")

EngineOption = Annotated[
    Literal["local", "ray"],
    CommandOption("Work on this machine, or in the workers of a Ray cluster.", Heading.DISTRIBUTED),
]
AddressOption = Annotated[
    str | None,
    CommandOption(
        "Ray cluster to join; auto finds it.",
        Heading.DISTRIBUTED,
        metavar="HOST:PORT",
        show_default="start one here",
    ),
]
WorkersOption = Annotated[
    int | None,
    Field(ge=1),
    CommandOption(
        "Worker processes of the Ray cluster.",
        Heading.DISTRIBUTED,
        name="workers",
        show_default="one per core",
    ),
]


class RunOptions(BaseModel):
    """Which attempts a run consists of, where they run and what stops them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    out: Annotated[
        Path | None,
        CommandOption(
            "Run directory.",
            Heading.RESULTS,
            "-o",
            metavar="DIR",
            show_default="runs/TASKS-MODEL-HASH",
        ),
    ] = None
    """From Python, None writes nothing to disk."""
    record_tokens: Annotated[
        bool,
        CommandOption(
            "Record the token ids of every call in tokens.jsonl, for training.", Heading.SAMPLING
        ),
    ] = False
    """Needs `out`, and an endpoint that reports token ids. An endpoint may set it, too."""
    fresh: Annotated[
        bool,
        CommandOption("Start a new run, in an unused directory such as run-2.", Heading.RESULTS),
    ] = False
    concurrency: Annotated[
        int, Field(ge=1), CommandOption("Maximum attempts in flight.", Heading.AMOUNT, "-j")
    ] = 64
    engine: EngineOption = "local"
    address: AddressOption = None
    num_workers: WorkersOption = None
    """The workers share `concurrency`."""
    max_turns: Annotated[
        int | None,
        Field(ge=1),
        CommandOption(
            "Stop an episode after N model messages.",
            Heading.BUDGETS,
            show_default="the limit of the row or the environment, else 32",
        ),
    ] = None
    """Overrides the limits of the row and of the environment."""
    max_episode_tokens: Annotated[
        int | None,
        Field(ge=1),
        CommandOption("Stop an episode after N tokens, prompts included.", Heading.BUDGETS),
    ] = None
    """The episode is scored as it is then."""
    max_episode_cost: Annotated[
        float | None,
        AfterValidator(positive),
        CommandOption(
            "Stop an episode at this cost; gym.toml must have prices.",
            Heading.BUDGETS,
            metavar="COST",
        ),
    ] = None
    max_episode_time: Annotated[
        float,
        AfterValidator(positive),
        CommandOption("Stop an episode after this time.", Heading.BUDGETS, metavar="SECONDS"),
    ] = 3600.0
    """The episode is scored as it is then."""
    max_tokens_total: Annotated[
        int | None,
        Field(ge=1),
        CommandOption("Stop the run after N tokens, roles included.", Heading.BUDGETS),
    ] = None
    """Earlier commands of this run count too."""
    max_cost: Annotated[
        float | None,
        AfterValidator(positive),
        CommandOption(
            "Stop the run at this cost; gym.toml must have prices.", Heading.BUDGETS, metavar="COST"
        ),
    ] = None
    """Every model needs prices, those of roles too."""
    max_run_time: Annotated[
        float | None,
        AfterValidator(positive),
        CommandOption("Stop the run after this time.", Heading.BUDGETS, metavar="SECONDS"),
    ] = None
    """Counted for this command; no attempt starts later."""
    max_failures: Annotated[
        int | None,
        Field(ge=1),
        CommandOption(
            "Stop the run after N failed attempts, with exit code 4.", Heading.BUDGETS, metavar="N"
        ),
    ] = None
    """Counted for this command, retries of a request excluded."""
    grace: Annotated[
        float,
        AfterValidator(not_negative),
        CommandOption(
            "Time that attempts in flight get to finish when the run stops early.",
            Heading.EXPERT,
            metavar="SECONDS",
        ),
    ] = 30.0
    outage_deadline: Annotated[
        float | None,
        AfterValidator(not_negative),
        CommandOption(
            "Time to wait for an endpoint that is down.",
            Heading.EXPERT,
            metavar="SECONDS",
            show_default="gym.toml's, else 300",
        ),
    ] = None
    """Overrides what an endpoint sets itself."""
    no_retry: Annotated[
        bool, CommandOption("Skip attempts that failed in an earlier command.", Heading.EXPERT)
    ] = False
    retry_crashed: Annotated[
        bool, CommandOption("Also retry attempts in which the run's process died.", Heading.EXPERT)
    ] = False


class CollectOptions(TaskOptions, RunOptions):
    """The options of `gymcli.collect`; `gym collect` fills them from its own."""

    model: str = Field(min_length=1)
    """A model's name at the endpoint, `local`, `local:PATH.gguf`, or `oracle` for gold answers.

    Defaults to the endpoint's model. A model in this process, with a method `complete`, may stand
    in its place: then it becomes `policy`, and its attribute `name`, else its class, names it.
    """
    policy: InstanceOf[PolicyModel] | None = Field(default=None, exclude=True)
    """A model in this process that answers in place of an endpoint."""
    endpoint: Endpoint | None = None
    """The endpoint of the model; None for `local` and `oracle`."""
    benchmark: InstanceOf[BenchmarkRecord] | None = Field(default=None, exclude=True)
    """The benchmark that the tasks and other options come from."""
    params: dict[str, object] = {}
    """Request parameters; they override those of a row."""
    roles: dict[str, Endpoint | str] = {}
    """Models of roles: an endpoint, `local`, `local:PATH.gguf`, or `oracle` for the environment's
    own stand-in."""
    default_roles: dict[str, Endpoint | str] = {}
    """Models for roles that `roles` omits, in environments that have these roles."""
    missing_roles: dict[str, str] = Field(default={}, exclude=True)
    """By role, why `default_roles` names no model for it; printed when the role needs one."""
    role_params: RoleParamsOption = {}
    """Request parameters of roles; they override those that an environment sets."""
    secrets: tuple[SecretStr, ...] = Field(default=(), exclude=True)
    """Additional texts that must never be written. Keys of endpoints and the values of environment
    variables with a name such as API_TOKEN are never written either."""

    @property
    def records_tokens(self) -> bool:
        """Whether these options, or those of the model's endpoint, ask for token ids."""
        return self.record_tokens or (self.endpoint is not None and self.endpoint.record_tokens)

    def with_outage_deadline(self) -> Self:
        """Return these options with `outage_deadline`, if set, copied to every endpoint."""
        if self.outage_deadline is None:
            return self
        deadline = {"outage_deadline": self.outage_deadline}

        def changed(source: T) -> T:
            return source.model_copy(update=deadline) if isinstance(source, Endpoint) else source

        roles, default_roles = (
            {role: changed(source) for role, source in sources.items()}
            for sources in (self.roles, self.default_roles)
        )
        endpoint = changed(self.endpoint)
        update = {"endpoint": endpoint, "roles": roles, "default_roles": default_roles}
        return self.model_copy(update=update)

    @model_validator(mode="before")
    @classmethod
    def _name_model(cls, data: dict[str, object]) -> dict[str, object]:
        endpoint, model = data.get("endpoint"), data.get("model")
        if isinstance(model, PolicyModel):
            name = getattr(model, "name", None)
            named = name if isinstance(name, str) and name else type(model).__name__
            return {**data, "policy": model, "model": named}
        if "model" not in data and isinstance(endpoint, Endpoint):
            return {**data, "model": endpoint.model}
        return data

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.policy is not None and (self.endpoint is not None or self.engine == "ray"):
            other = "an endpoint" if self.endpoint is not None else 'engine="ray"'
            raise ValueError(f"a model in this process cannot be used with {other}")
        if self.endpoint is not None and self.endpoint.model != self.model:
            raise ValueError(f"the endpoint serves {self.endpoint.model}, not {self.model}")
        return self
