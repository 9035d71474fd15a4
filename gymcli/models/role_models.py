"""The models of roles as one attempt sees them: asked through the client, cached and counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping

from gymcli.environment.context import Cache, Model
from gymcli.environment.contract import Environment
from gymcli.environment.parts import Task
from gymcli.errors import GymError, ModelError, RoleError, UsageError, boundary
from gymcli.models.endpoint import SCALAR_DIALECTS, Endpoint
from gymcli.models.local_weights import parse_local
from gymcli.models.role_pool import ModelPool, ModelSource
from gymcli.models.role_sources import ORACLE, RoleSource, role_name
from gymcli.store.verdicts import Verdicts, kept_form, verdict_key
from gymcli.types import Answer, JSONObject, Message, Request, RoleUse, Usage

__all__ = ["RoleModels", "declared_roles", "waits_to_score"]


def declared_roles(environment: type[Environment[Task]]) -> tuple[str, ...]:
    """Give the roles that an environment may use."""
    return (*environment.required_roles, *environment.optional_roles)


def waits_to_score(environment: type[Environment[Task]], roles: Collection[str]) -> bool:
    """Return whether scoring waits for anything, with models for these roles at hand."""
    if environment.waits_to_verify or environment.scores_groups():
        return True
    return bool(roles) and any(role in roles for role in declared_roles(environment))


class RoleModels:
    """Who plays each role of a run, and what they answered before.

    Args:
        sources: The model of each role.
        params: Request parameters by role; they win over those of the environment.
        pool: Where the models are opened, which the policy may share.
        verdicts: The answers on record.
        spend: Told of every answer's tokens and their cost, as it comes.
        asks_anew: Every call is made, whatever was answered before, and no answer is kept.

    """

    def __init__(
        self,
        sources: Mapping[str, RoleSource],
        *,
        pool: ModelPool,
        verdicts: Verdicts,
        params: Mapping[str, JSONObject] | None = None,
        spend: Callable[[Usage, float | None], None] | None = None,
        asks_anew: bool = False,
    ) -> None:
        self.sources = sources
        self.spend = spend
        self._params = params or {}
        self.pool = pool
        self.verdicts = verdicts
        self._asks_anew = asks_anew
        # What is being asked; equal requests at the same time wait for what comes of the first.
        self._asking: dict[str, asyncio.Future[Message]] = {}

    def of(
        self,
        environment: type[Environment[Task]],
        fields: JSONObject,
        use: dict[str, RoleUse],
    ) -> dict[str, Model]:
        """Give the models that one attempt may ask; what they take is counted in `use`."""
        given = [role for role in declared_roles(environment) if role in self.sources]
        stand_ins = {}
        if any(self.sources[role] == ORACLE for role in given):
            stand_ins = _stand_ins(environment, fields)
        return {
            role: stand_ins.get(role, _NoStandIn(environment.__name__, role))
            if self.sources[role] == ORACLE
            else _RoleModel(role, self, use)
            for role in given
        }

    async def ask(
        self,
        role: str,
        request: Request,
        total: RoleUse,
        *,
        cache: Cache | str | None,
        schema: JSONObject | None,
    ) -> Message:
        """Ask the model of a role, unless the same was answered before; count it in `total`.

        Equal requests at the same time are one call: all of them get its answer, or its error.
        Only where who asked first was cancelled does the next one ask.

        Raises:
            RoleError: There is no usable answer; `__cause__` is the client's error, if the call
                failed.
            UsageError: Log probabilities of an answer that is kept are asked for.

        """
        source = self.sources[role]
        params = {**request.params, **self._params.get(role, {})}
        request = Request(messages=request.messages, params=params)
        if cache is None:
            return await self._ask(role, request, schema, total)
        if params.get("logprobs") or params.get("top_logprobs"):
            raise UsageError(
                f"the role {role}: an answer that is kept has no log probabilities; leave out "
                f"--role-param {role}.logprobs, or have the environment ask with cache=None"
            )
        if self._asks_anew:
            return kept_form(await self._ask(role, request, schema, total))
        kept = cache if isinstance(cache, Cache) else Cache(cache, lambda message: True)
        key = verdict_key(
            _asked_name(source), request.messages, schema=schema, params=params, cache=kept.text
        )
        while (asking := self._asking.get(key)) is not None:
            await asyncio.wait([asking])
            if not asking.cancelled():
                message = asking.result()  # or raises what the first one met
                total.num_cached += 1
                return message
        known = self.verdicts.get(key)
        if known is not None and kept.keeps(known):
            total.num_cached += 1
            return kept_form(known)
        asking = self._asking[key] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._ask(role, request, schema, total)
            # Whoever asks first gets what the others do, or a score would depend on the order.
            message = kept_form(answer)
            if kept.keeps(message):
                self.verdicts.add(key, answer, role=role, model=role_name(source))
            asking.set_result(message)
        except GymError as error:
            asking.set_exception(error)
            asking.exception()  # seen, even where nobody waits for it
            raise
        finally:
            asking.cancel()
            del self._asking[key]
        return message

    async def _ask(
        self, role: str, request: Request, schema: JSONObject | None, total: RoleUse
    ) -> Message:
        if schema is not None:
            # Endpoints refuse an open schema that is called strict.
            is_closed = schema.get("additionalProperties") is False
            named = {"name": "answer", "schema": schema, "strict": is_closed}
            form = {"type": "json_schema", "json_schema": named}
            request = Request(
                messages=request.messages, params={**request.params, "response_format": form}
            )
        started = time.perf_counter()
        client = await self.pool.client(_opened_as(self.sources[role]))
        tries = request.tries
        try:
            with boundary(ModelError):
                answer = await client.answer(request)
        except ModelError as error:
            total.add(RoleUse(num_failed=1))
            raise RoleError(f"{role}: {error}") from error
        finally:
            total.add(RoleUse(retries=tries.retries))
            if tries.usage != Usage():
                self._count(total, RoleUse(usage=tries.usage), client.endpoint)
        seconds = time.perf_counter() - started
        used = RoleUse(num_calls=1, seconds=seconds, usage=answer.usage)
        self._count(total, used, client.endpoint)
        fault = _fault(role, answer)
        if fault:
            total.add(RoleUse(num_failed=1))
            raise RoleError(f"{role}: the answer {fault}", is_answered=True)
        return answer.message

    def _count(self, total: RoleUse, used: RoleUse, endpoint: Endpoint) -> None:
        """Count what an answer took."""
        used.cost = endpoint.cost(used.usage)
        total.add(used)
        if self.spend is not None:
            self.spend(used.usage, used.cost)


class _RoleModel:
    """The model of one role for one attempt."""

    def __init__(self, role: str, models: RoleModels, use: dict[str, RoleUse]) -> None:
        self._role = role
        self._models = models
        self._use = use

    @property
    def is_scalar(self) -> bool:
        source = self._models.sources[self._role]
        return isinstance(source, Endpoint) and source.dialect in SCALAR_DIALECTS

    async def complete(
        self,
        messages: list[Message],
        *,
        schema: JSONObject | None = None,
        params: JSONObject | None = None,
        cache: Cache | str | None = None,
    ) -> Message:
        request = Request(messages=messages, params=params or {})
        model = role_name(self._models.sources[self._role])
        total = self._use.setdefault(self._role, RoleUse(model=model))
        return await self._models.ask(self._role, request, total, cache=cache, schema=schema)


class _NoStandIn:
    """A role that is to be played by a stand-in which the environment does not have."""

    is_scalar = False

    def __init__(self, environment: str, role: str, reason: str = "") -> None:
        self._text = f"{environment} has no stand-in for the role {role}{reason}"

    async def complete(self, messages: list[Message], **options: object) -> Message:
        raise RoleError(self._text)


def _fault(role: str, answer: Answer) -> str:
    """Say why an answer is none; an empty text where it is one."""
    if answer.finish_reason == "length":
        return f"was cut at its token limit (--role-param {role}.max_tokens=N raises it)"
    if answer.finish_reason == "content_filter":
        return "was filtered by the endpoint"
    if answer.message.refusal:
        return f"is a refusal: {answer.message.refusal[:200]}"
    return "" if answer.message.text.strip() or answer.message.tool_calls else "is empty"


def _stand_ins(environment: type[Environment[Task]], fields: JSONObject) -> dict[str, Model]:
    """Give the scripted models of a task; where making them fails, ones that say so."""
    try:
        with boundary(RoleError):
            return dict(environment.stand_ins(environment.parse_task(fields)))
    except RoleError as error:
        name, reason = environment.__name__, f": {error}"
        return {role: _NoStandIn(name, role, reason) for role in declared_roles(environment)}


def _opened_as(source: RoleSource) -> ModelSource:
    if isinstance(source, Endpoint):
        return source
    weights = parse_local(source)
    assert weights is not None, "a stand-in is never opened"
    return weights


def _asked_name(source: RoleSource) -> str:
    """Name what answers: the model, and the wire format where that is not the usual one."""
    if isinstance(source, Endpoint) and source.dialect != "chat":
        return f"{source.model}\0{source.dialect}"
    return role_name(source)
