"""The models that play the roles of a run: how the user names them, and how they are asked.

A role's source is what the user named: an endpoint, an embedded model, or the environment's own
stand-in. `RoleModels` asks the sources for the attempts of a run, and equal questions only once.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Self, TypeAlias

from gymcli.environment.contract import Cache, Environment, Model
from gymcli.environment.tool import Task
from gymcli.errors import GymError, ModelError, RoleError, UsageError, boundary
from gymcli.models.client import Client
from gymcli.models.endpoint import SCALAR_DIALECTS, Endpoint, merged_params
from gymcli.models.limits import CircuitBreaker, Lend, SharedLimiters
from gymcli.models.local_model import LocalServer, has_tool_template, model_name, parse_local
from gymcli.models.settings import Settings, resolve_endpoint
from gymcli.store.verdicts import Verdicts, compact_answer, verdict_key
from gymcli.suggestions import did_you_mean
from gymcli.types import Answer, JSONObject, Message, Request, RoleUse, Usage

ORACLE = "oracle"
"""The scripted model of `Environment.stand_ins`."""

RoleSource: TypeAlias = Endpoint | str
"""An endpoint, or one of `local`, `local:PATH.gguf` and `oracle`."""

ModelSource: TypeAlias = Endpoint | Path
"""An endpoint, or the weights of an embedded model."""

_LOCAL_OUTAGE_DEADLINE = 5.0
"""Seconds: an embedded model that died does not come back."""

_WAYS_OUT = (
    "pass a name from [models] in gym.toml, URL#MODEL, local, or oracle; or set OPENAI_API_KEY for "
    "the models of the OpenAI API"
)


def role_sources(
    specs: Mapping[str, str], settings: Settings, environ: Mapping[str, str]
) -> dict[str, RoleSource]:
    """Return the model of each role from `ROLE=NAME_OR_URL`.

    An address may name its model after a `#`, and belongs to a reward model if its path ends in
    /score, /pooling or /classify. No key is sent to it.

    Raises:
        UsageError: A model is unknown, or an address is invalid or incomplete.
    """
    return {role: _source(role, spec, settings, environ) for role, spec in specs.items()}


def needs_model(spec: str) -> str | None:
    """Return the base URL of an address without a model; None for any other text."""
    address, _, model = spec.partition("#")
    return _base_and_dialect(address)[0] if _is_address(spec) and not model else None


def _is_address(spec: str) -> bool:
    """Return whether a text is meant as an address, even an invalid one: it may hold a secret."""
    return "://" in spec


def _base_and_dialect(address: str) -> tuple[str, str | None]:
    address = address.rstrip("/")
    head, _, last = address.rpartition("/")
    return (head, last) if last in SCALAR_DIALECTS else (address, None)


def _source(role: str, spec: str, settings: Settings, environ: Mapping[str, str]) -> RoleSource:
    option = f"--role {role}"  # an address is not shown: it may hold a secret
    base_url = dialect = None
    model = spec
    try:
        if _is_address(spec):
            address, _, model = spec.partition("#")
            base_url, dialect = _base_and_dialect(address)
            if not model:
                raise UsageError("name the model after the address: URL#MODEL")
        else:
            option = f"{option}={spec}"
            if spec == ORACLE or (spec not in settings.models and parse_local(spec) is not None):
                return spec
        return resolve_endpoint(
            model,
            base_url=base_url,
            api_key_env=None,
            dialect=dialect,
            settings=settings,
            environ=environ,
            ways_out=_WAYS_OUT,
        )
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from error


def spec_of(source: RoleSource) -> str:
    """Return the text that `role_sources` would parse as this model, without any secret."""
    if isinstance(source, str):
        return source
    if source.name is not None:
        return source.name
    path = f"/{source.dialect}" if source.dialect in SCALAR_DIALECTS else ""
    return f"{source.base_url}{path}#{source.model}"


def role_name(source: RoleSource) -> str:
    if isinstance(source, Endpoint):
        return source.model
    weights = None if source == ORACLE else parse_local(source)
    return source if weights is None else model_name(weights)


def role_identity(source: RoleSource, params: JSONObject) -> JSONObject:
    """Return a role's part of the identity of a run; the dialect only if it is not `chat`.

    The endpoint's own parameters stand apart, since those of the environment override them.
    """
    identity: JSONObject = {"model": role_name(source), "params": params}
    if isinstance(source, Endpoint) and source.params:
        identity["default_params"] = source.params
    if isinstance(source, Endpoint) and source.dialect != "chat":
        identity["dialect"] = source.dialect
    return identity


def declared_roles(environment: type[Environment[Task]]) -> tuple[str, ...]:
    return (*environment.required_roles, *environment.optional_roles)


def waits_to_score(environment: type[Environment[Task]], roles: Collection[str]) -> bool:
    """Return whether scoring waits for anything, given the roles that have models."""
    if environment.waits_to_verify or environment.scores_groups():
        return True
    return bool(roles) and any(role in roles for role in declared_roles(environment))


def check_declared(
    sources: Mapping[str, RoleSource],
    roles: Iterable[str],
    environments: Mapping[str, type[Environment[Task]]],
) -> None:
    """Check that every required role has a model, and every role of an option is declared.

    Raises:
        UsageError: A required role has no model, an option names a role that no environment
            declares, or a model is only a name.
    """
    for name, environment in environments.items():
        for role in environment.required_roles:
            if role not in sources:
                raise UsageError(
                    f"environment {name} needs a model for the role {role}: pass "
                    f"--role {role}=NAME_OR_URL, or set {role} = NAME under [roles] in gym.toml"
                )
    declared = {role for kind in environments.values() for role in declared_roles(kind)}
    for role in roles:
        if role not in declared:
            hint = did_you_mean(role, declared)
            names = ", ".join(sorted(declared)) or "none"
            raise UsageError(
                f"the role {role}: no environment of this run uses it{hint and f'; {hint}'} "
                f"(roles: {names})"
            )
    for role, source in sources.items():
        if isinstance(source, str) and source != ORACLE and parse_local(source) is None:
            raise UsageError(
                f"the role {role}: a model's name does not say where it is served; pass a "
                "gymcli.Endpoint, local, local:PATH.gguf or oracle"
            )


def check_missing(
    reasons: Mapping[str, str], environments: Mapping[str, type[Environment[Task]]]
) -> list[str]:
    """Return warnings about optional roles whose named models are not available.

    `reasons` has the reason for each missing model, by role; undeclared roles are ignored.

    Raises:
        UsageError: An environment requires one of the roles.
    """
    warnings: dict[str, str] = {}
    for name, environment in environments.items():
        for role in declared_roles(environment):
            if role not in reasons:
                continue
            if role in environment.required_roles:
                text = f"environment {name} needs a model for the role {role}: {reasons[role]}"
                raise UsageError(text)
            warnings[role] = f"no model for the role {role}: {reasons[role]}"
    return list(warnings.values())


class ModelPool:
    """One client for each model, whatever roles it plays.

    Models with the same address and key share its limits and its outages. An async context manager
    that closes the clients. With `owner`, a pool that is open, the clients are that one's.
    """

    def __init__(self, concurrency: int, owner: ModelPool | None = None) -> None:
        self._concurrency = concurrency
        self._owner = owner
        self._limiters = SharedLimiters(concurrency)
        self._opening = asyncio.Lock()
        self._clients: list[tuple[ModelSource, Client]] = []
        self._stack = AsyncExitStack()

    async def client(self, source: ModelSource) -> Client:
        """Return the client of a model; the first call opens it.

        Raises:
            RunError: The embedded model does not start.
            ConfigError: The endpoint's `ca_file` cannot be read.
        """
        async with self._opening:  # concurrent first requests must not start a server twice
            # A list, since an endpoint holds dicts and cannot be hashed.
            for client_source, client in self._clients:
                if client_source == source:
                    return client
            if self._owner is not None:
                client = await self._owner.client(source)
                self._clients.append((source, client))
                return client
            if isinstance(source, Path):
                server = await self._stack.enter_async_context(LocalServer(source))
                endpoint = Endpoint(
                    base_url=server.base_url,
                    model=server.model,
                    # A chat template without tools would leave them out of the prompt.
                    emulate_tools=not has_tool_template(source),
                    outage_deadline=_LOCAL_OUTAGE_DEADLINE,
                )
            else:
                endpoint = source
            client = Client(endpoint, concurrency=self._concurrency, limiters=self._limiters)
            await self._stack.enter_async_context(client)
            self._clients.append((source, client))
            return client

    @property
    def num_outages(self) -> int:
        return sum(breaker.num_outages for breaker in self._breakers())

    @property
    def outage_seconds(self) -> float:
        return sum(breaker.outage_seconds for breaker in self._breakers())

    def _breakers(self) -> set[CircuitBreaker]:
        return {
            replica.limiter.breaker for _, client in self._clients for replica in client.replicas
        }

    @property
    def retries(self) -> Counter[str]:
        """Failed requests to these models that are sent again, by error class.

        Those of an owner's clients are counted by the owner.
        """
        if self._owner is not None:
            return Counter()
        return sum((client.retries.counts for _, client in self._clients), Counter())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()


@dataclass(eq=False)
class RoleModels:
    """Asks the models that play the roles of a run, and reuses their stored answers."""

    sources: Mapping[str, RoleSource]
    """The model of each role."""
    _: KW_ONLY
    pool: ModelPool
    """The clients of the models; the policy may share it."""
    verdicts: Verdicts
    """The stored answers."""
    params: Mapping[str, JSONObject] = field(default_factory=dict)
    """Request parameters by role; they override those of the environment and the endpoint."""
    spend: Callable[[Usage, float | None], None] | None = None
    """Called with every answer's tokens and their cost."""
    ignores_verdicts: bool = False
    """Make every call anyway, and store no answer."""
    under_way: dict[str, asyncio.Future[Message]] = field(default_factory=dict)
    """Unanswered questions by key: later equal ones wait for the answer to the first."""

    def of(
        self,
        environment: type[Environment[Task]],
        fields: JSONObject,
        use: dict[str, RoleUse],
        lend: Lend | None = None,
    ) -> dict[str, RoleModel]:
        """Return the models that one attempt may ask; their calls are counted in `use`.

        `lend` lends the attempt's slot while a model refuses it.
        """
        models: dict[str, RoleModel] = {}
        stand_ins: dict[str, Model] | None = None
        for role in declared_roles(environment):
            if role not in self.sources:
                continue
            if self.sources[role] != ORACLE:
                models[role] = RoleModel(_EndpointModel(role, self, use, lend))
                continue
            if stand_ins is None:
                stand_ins = _stand_ins(environment, fields)
            stand_in = stand_ins.get(role, _NoStandIn(environment.__name__, role))
            models[role] = RoleModel(stand_in, is_stand_in=True)
        return models


class RoleModel:
    """The model of one role in one attempt; counts its pending requests and keeps its errors.

    Environment code may raise any class, but only what a model raised says anything about the run.
    A stand-in is environment code too: whatever it raises is a failure of its role.
    """

    def __init__(self, model: Model, *, is_stand_in: bool = False) -> None:
        self.num_asked = 0
        """Requests without an answer yet."""
        self.errors: list[GymError] = []
        self._model = model
        self._is_stand_in = is_stand_in

    @property
    def is_scalar(self) -> bool:
        return self._model.is_scalar

    async def complete(
        self,
        messages: list[Message],
        *,
        schema: JSONObject | None = None,
        params: JSONObject | None = None,
        cache: Cache | str | None = None,
    ) -> Message:
        """Ask the model; see `gymcli.environment.contract.Model`."""
        self.num_asked += 1
        try:
            with boundary(RoleError) if self._is_stand_in else nullcontext():
                return await self._model.complete(
                    messages, schema=schema, params=params, cache=cache
                )
        except GymError as error:
            self.errors.append(error)
            raise
        finally:
            self.num_asked -= 1


@dataclass(eq=False)
class _EndpointModel:
    role: str
    models: RoleModels
    use: dict[str, RoleUse]
    lend: Lend | None

    @property
    def is_scalar(self) -> bool:
        source = self.models.sources[self.role]
        return isinstance(source, Endpoint) and source.dialect in SCALAR_DIALECTS

    async def complete(
        self,
        messages: list[Message],
        *,
        schema: JSONObject | None = None,
        params: JSONObject | None = None,
        cache: Cache | str | None = None,
    ) -> Message:
        """Ask the model, unless it has answered an equal request.

        Concurrent equal requests make one call, and all get its answer or error. Another one makes
        a call only if the first is cancelled.

        Raises:
            RoleError: There is no usable answer; `__cause__` is the client's error, if the call
                failed.
            UsageError: Log probabilities are asked for together with `cache`.
        """
        models, role = self.models, self.role
        source = models.sources[role]
        defaults = source.params if isinstance(source, Endpoint) else {}
        params = merged_params(defaults, params or {}, models.params.get(role, {}))
        total = self.use.setdefault(role, RoleUse(model=role_name(source)))
        if cache is None:
            return await self._ask(messages, params, schema, total)
        if params.get("logprobs") or params.get("top_logprobs"):
            raise UsageError(
                f"the role {role}: cached answers have no log probabilities; leave out "
                f"--role-param {role}.logprobs, or have the environment ask with cache=None"
            )
        if models.ignores_verdicts:
            return compact_answer(await self._ask(messages, params, schema, total))
        if not isinstance(cache, Cache):
            cache = Cache(cache, lambda message: True)
        name = role_name(source)
        if isinstance(source, Endpoint) and source.dialect != "chat":
            name = f"{source.model}\0{source.dialect}"
        key = verdict_key(name, messages, schema=schema, params=params, cache=cache.text)
        ask = functools.partial(self._ask, messages, params, schema, total)
        return await self._ask_once(key, cache, ask, total)

    async def _ask_once(
        self, key: str, cache: Cache, ask: Callable[[], Awaitable[Message]], total: RoleUse
    ) -> Message:
        models, role = self.models, self.role
        while (asking := models.under_way.get(key)) is not None:
            # Awaiting the future itself would cancel it for all others if this task is cancelled.
            await asyncio.wait([asking])
            if not asking.cancelled():
                message = asking.result()  # raises the error of the first one
                total.num_cached += 1
                return message
        verdict = models.verdicts.get(key)
        if verdict is not None and cache.keeps(verdict):
            total.num_cached += 1
            return compact_answer(verdict)
        asking = models.under_way[key] = asyncio.get_running_loop().create_future()
        try:
            answer = await ask()
            # The first to ask gets the same shortened answer, or scores would depend on the order.
            message = compact_answer(answer)
            if cache.keeps(message):
                models.verdicts.add(key, answer, role=role, model=role_name(models.sources[role]))
            asking.set_result(message)
        except GymError as error:
            asking.set_exception(error)
            asking.exception()  # otherwise asyncio warns if nobody waits for it
            raise
        finally:
            # Without a result, as after a cancellation, one of the waiting tasks asks instead.
            asking.cancel()
            del models.under_way[key]
        return message

    async def _ask(
        self,
        messages: list[Message],
        params: JSONObject,
        schema: JSONObject | None,
        total: RoleUse,
    ) -> Message:
        if schema is not None:
            # With `strict`, endpoints refuse a schema that allows additional properties.
            is_closed = schema.get("additionalProperties") is False
            json_schema = {"name": "answer", "schema": schema, "strict": is_closed}
            response_format = {"type": "json_schema", "json_schema": json_schema}
            params = {**params, "response_format": response_format}
        request = Request(messages=messages, params=params)
        tries = request.tries
        started = time.perf_counter()
        source = self.models.sources[self.role]
        opened = source if isinstance(source, Endpoint) else parse_local(source)
        assert opened is not None, "a stand-in is never opened"
        client = await self.models.pool.client(opened)
        try:
            with boundary(ModelError):
                answer = await client.answer(request, self.lend)
        except ModelError as error:
            total.add(RoleUse(num_failed=1))
            raise RoleError(f"{self.role}: {error}") from error
        finally:  # a request that failed has retries and tokens too
            total.add(RoleUse(retries=tries.retries))
            if tries.usage != Usage():
                self._count(total, RoleUse(usage=tries.usage), client.endpoint)
        seconds = time.perf_counter() - started
        used = RoleUse(num_calls=1, seconds=seconds, usage=answer.usage)
        self._count(total, used, client.endpoint)
        fault = _fault(self.role, answer)
        if fault:
            total.add(RoleUse(num_failed=1))
            raise RoleError(f"{self.role}: the answer {fault}", is_answered=True)
        return answer.message

    def _count(self, total: RoleUse, used: RoleUse, endpoint: Endpoint) -> None:
        used.cost = endpoint.cost(used.usage)
        total.add(used)
        if self.models.spend is not None:
            self.models.spend(used.usage, used.cost)


class _NoStandIn:
    """Takes the place of a missing stand-in; asking it is an error."""

    is_scalar = False

    def __init__(self, environment: str, role: str, reason: str = "") -> None:
        self._text = f"{environment} has no stand-in for the role {role}{reason}"

    async def complete(self, messages: list[Message], **options: object) -> Message:
        raise RoleError(self._text)


def _stand_ins(environment: type[Environment[Task]], fields: JSONObject) -> dict[str, Model]:
    """Return the scripted models of a task; if making them fails, ones that raise the reason."""
    try:
        with boundary(RoleError):
            return dict(environment.stand_ins(environment.parse_task(fields)))
    except RoleError as error:
        name, reason = environment.__name__, f": {error}"
        return {role: _NoStandIn(name, role, reason) for role in declared_roles(environment)}


def _fault(role: str, answer: Answer) -> str:
    """Return why an answer is unusable; an empty text if it is usable."""
    if answer.finish_reason == "length":
        return f"was cut at its token limit (--role-param {role}.max_tokens=N raises it)"
    if answer.finish_reason == "content_filter":
        return "was filtered by the endpoint"
    if answer.finish_reason == "malformed_call":
        return "is a tool call that the endpoint cannot read"
    if answer.finish_reason == "refusal":
        return f"is a refusal: {(answer.message.refusal or answer.message.text)[:200]}"
    return "" if answer.message.text.strip() or answer.message.tool_calls else "is empty"
