"""The options of a collection, validated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self, TypeVar

import typer
from pydantic import (
    Field,
    InstanceOf,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from typer.models import OptionInfo

from gymcli.errors import UsageError
from gymcli.models.endpoint import Endpoint
from gymcli.models.in_process import PolicyModel
from gymcli.runner.run_options import RunOptions
from gymcli.store.manifest import BenchmarkRecord
from gymcli.suggestions import did_you_mean, pydantic_reason
from gymcli.tasks.task_options import TaskOptions

T = TypeVar("T")


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
    role_params: dict[str, dict[str, object]] = {}
    """Request parameters of roles; they override those that an environment sets."""
    secrets: tuple[SecretStr, ...] = Field(default=(), exclude=True)
    """Additional texts that must never be written. Keys of endpoints and the values of environment
    variables with a name such as API_TOKEN are never written either."""

    @classmethod
    def from_arguments(cls, function: str, arguments: Mapping[str, object]) -> Self:
        """Return the options that were passed to a function of this name.

        Raises:
            UsageError: An option is unknown, is missing or has a wrong value.
        """
        try:
            return cls.model_validate(arguments)
        except ValidationError as error:
            # Without the cause, which shows values, and so keys.
            raise UsageError(f"{function}: {'; '.join(cls._problems(error))}") from None

    @classmethod
    def _problems(cls, error: ValidationError) -> Iterator[str]:
        for detail in error.errors(include_url=False, include_input=False):
            name = ".".join(map(str, detail["loc"]))
            if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
                hint = did_you_mean(name, cls.model_fields)
                yield f"there is no option {name}{hint and f'; {hint}'}"
            elif detail["type"] == "missing":
                yield f"{name}= is missing" if name != "model" else "needs endpoint= or model="
            else:
                yield f"{name and f'{name}: '}{pydantic_reason(detail)}"

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

    @field_validator("*")
    @classmethod
    def _check_as_command_line(cls, value: object, info: ValidationInfo) -> object:
        # typer's own limits and callbacks, which `RunOptions` declares, so that both refuse the
        # same values.
        metadata = cls.model_fields[info.field_name or ""].metadata
        option = next((one for one in metadata if isinstance(one, OptionInfo)), None)
        if option is None or value is None:
            return value
        if option.min is not None and isinstance(value, int) and value < option.min:
            raise ValueError(f"must be {option.min} or more")
        if option.callback is None:
            return value
        try:
            checked: object = option.callback(value)
        except typer.BadParameter as error:
            raise ValueError(error.message) from error
        return checked

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
