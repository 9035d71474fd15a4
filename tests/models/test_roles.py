"""Which model plays a role, and how its answers are cached and counted."""

import asyncio
import itertools
from contextlib import AsyncExitStack
from importlib.util import find_spec

import pytest

from gymcli.environment.contract import Cache, Environment
from gymcli.environment.tool import Task
from gymcli.errors import RequestRefusedError, RoleError, RunDirectoryError, UsageError
from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import in_order, refusal_of
from gymcli.models.endpoint import Endpoint
from gymcli.models.local_model import model_name
from gymcli.models.roles import (
    ModelPool,
    RoleModels,
    check_declared,
    check_missing,
    needs_model,
    role_identity,
    role_name,
    role_sources,
    spec_of,
    waits_to_score,
)
from gymcli.models.settings import ModelSettings, Settings
from gymcli.store.verdicts import Verdicts
from gymcli.types import Message, Request, RoleUse, Usage

BIG_URL = "http://127.0.0.1:1/v1"
SETTINGS = Settings(
    models={
        "big": ModelSettings(
            base_url="http://127.0.0.1:1/v1", model="big-2", api_key_env="BIG_KEY"
        ),
        "scorer": ModelSettings(base_url="http://127.0.0.1:2", dialect="pooling"),
    }
)
ENVIRON = {"BIG_KEY": "sk-big-secret", "OPENAI_API_KEY": "sk-openai-secret"}


def source_of(spec, environ=ENVIRON):
    return role_sources({"judge": spec}, SETTINGS, environ)["judge"]


def test_role_sources_takes_a_name_of_the_settings_with_its_key():
    source = source_of("big")
    assert (source.base_url, source.model) == ("http://127.0.0.1:1/v1", "big-2")
    assert source.api_key.get_secret_value() == "sk-big-secret"
    assert (spec_of(source), role_name(source)) == ("big", "big-2")
    assert source_of("scorer").dialect == "pooling"


def test_role_sources_sends_an_address_no_key():
    source = source_of("http://127.0.0.1:3/v1#org/judge-7b")
    assert (source.base_url, source.model) == ("http://127.0.0.1:3/v1", "org/judge-7b")
    assert source.api_key is None
    assert spec_of(source) == "http://127.0.0.1:3/v1#org/judge-7b"


@pytest.mark.parametrize("dialect", ["score", "pooling", "classify"])
def test_role_sources_reads_the_format_of_a_reward_model_from_its_address(dialect):
    spec = f"http://127.0.0.1:3/v1/{dialect}#rm"
    source = source_of(spec)
    assert (source.base_url, source.dialect) == ("http://127.0.0.1:3/v1", dialect)
    assert spec_of(source) == spec


def test_role_sources_takes_any_other_name_for_one_of_the_known_address():
    source = source_of("gpt-9")
    assert source.base_url == "https://api.openai.com/v1"
    assert source.api_key.get_secret_value() == "sk-openai-secret"
    assert spec_of(source) == "gpt-9"


@pytest.mark.local_model
@pytest.mark.skipif(not find_spec("xllamacpp"), reason="xllamacpp is not installed")
def test_role_sources_takes_local_and_oracle(tmp_path):
    weights = tmp_path / "judge.gguf"
    weights.write_bytes(b"GGUF\x03\x00\x00\x00")
    spec = f"local:{weights}"
    assert (source_of(spec), spec_of(spec)) == (spec, spec)
    assert role_name(spec) == model_name(weights)
    assert (source_of("oracle"), role_name("oracle")) == ("oracle", "oracle")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("http://127.0.0.1:3/v1", "name the model after the address: URL#MODEL"),
        ("http://user:hush@127.0.0.1/v1#m", "must not carry a user"),
        ("http://user:hush@127.0.0.1/v1", "name the model"),
        ("http://127.0.0.1/v1?api_key=hush#m", "must end with its path"),
        ("http://127.0.0.1/v1?api_key=hush/score#m", "must end with its path"),
        ("HTTP://user:hush@127.0.0.1/v1#m", "must not carry a user"),
        ("ftp://user:hush@127.0.0.1/v1#m", "must look like"),
        ("http://user:hush@[/v1#m", "cannot be read"),
    ],
)
def test_role_sources_shows_no_address(spec, message):
    """An address may contain a key or a password."""
    with pytest.raises(UsageError, match=message) as caught:
        source_of(spec, {})
    assert str(caught.value).startswith("--role judge: ")
    assert "hush" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)


def test_role_sources_says_how_a_role_gets_a_model():
    """The message offers no option that only applies to the policy."""
    with pytest.raises(UsageError) as caught:
        source_of("bigg", {})
    assert str(caught.value) == (
        '--role judge=bigg: no endpoint for model bigg (did you mean "big" of gym.toml?): pass a '
        "name from [models] in gym.toml, URL#MODEL, local, or oracle; or set OPENAI_API_KEY for "
        "the models of the OpenAI API"
    )


def test_role_sources_says_which_weights_are_not_there():
    with pytest.raises(UsageError, match=r"^--role judge=local:no\.gguf: no\.gguf: cannot be read"):
        source_of("local:no.gguf")


def test_role_identity_names_a_dialect_that_is_not_the_usual_one():
    assert role_identity(source_of("big"), {}) == {"model": "big-2", "params": {}}
    assert role_identity(source_of("scorer"), {"a": 1}) == {
        "model": "scorer",
        "params": {"a": 1},
        "dialect": "pooling",
    }
    assert role_identity("oracle", {}) == {"model": "oracle", "params": {}}
    endpoint = Endpoint(base_url="http://h", model="j", params={"top_p": 0.5})
    assert role_identity(endpoint, {"a": 1}) == {
        "model": "j",
        "params": {"a": 1},
        "default_params": {"top_p": 0.5},
    }


def test_needs_model_asks_only_for_addresses_that_name_none():
    assert needs_model("http://127.0.0.1:3/v1") == "http://127.0.0.1:3/v1"
    assert needs_model("http://127.0.0.1:3/v1/score#") == "http://127.0.0.1:3/v1"
    assert needs_model("http://127.0.0.1:3/v1#m") is None
    assert needs_model("big") is None


def test_cost_needs_prices_and_takes_cached_tokens_apart():
    usage = Usage(prompt_tokens=1_000_000, completion_tokens=500_000, cached_tokens=400_000)
    prices = {"prompt": 2.0, "completion": 4.0}
    base = {"base_url": "http://127.0.0.1/v1", "model": "m"}
    assert Endpoint(**base).cost(usage) is None
    assert Endpoint(**base, prices={"prompt": 1.0}).cost(usage) is None
    assert Endpoint(**base, prices=prices).cost(usage) == pytest.approx(4.0)
    assert Endpoint(**base, prices={**prices, "cached": 0.5}).cost(usage) == pytest.approx(3.4)


JUDGE = Endpoint(base_url="http://127.0.0.1:9/v1", model="j")


class Judged(Environment[Task]):
    """Requires a judge and may use a user."""

    required_roles = ("judge",)
    optional_roles = ("user",)


ENVIRONMENTS = {"judged": Judged}


def test_check_declared_takes_what_fits():
    check_declared({"judge": JUDGE, "user": "oracle"}, ["judge", "user"], ENVIRONMENTS)
    check_declared({"judge": "oracle"}, (), ENVIRONMENTS)


def test_check_declared_names_what_is_missing():
    with pytest.raises(UsageError, match="environment judged needs a model for the role judge"):
        check_declared({"user": JUDGE}, (), ENVIRONMENTS)


@pytest.mark.parametrize(
    ("role", "message"),
    [("jugde", 'did you mean "judge"'), ("x", r"this run uses it \(roles: judge, user\)")],
)
def test_check_declared_refuses_roles_that_nobody_has(role, message):
    with pytest.raises(UsageError, match=message):
        check_declared({"judge": JUDGE}, [role], ENVIRONMENTS)


@pytest.mark.parametrize("name", ["gpt-4o", "", "http://user:hush@127.0.0.1:9/v1#j"])
def test_check_declared_refuses_a_mere_name(name):
    message = r"^the role judge: .* pass a gymcli\.Endpoint, local"
    with pytest.raises(UsageError, match=message) as caught:
        check_declared({"judge": name}, (), ENVIRONMENTS)
    assert "hush" not in str(caught.value)


def test_check_missing_speaks_of_roles_that_are_declared():
    assert check_missing({"tool": "no key"}, ENVIRONMENTS) == []
    assert check_missing({"user": "no key"}, {**ENVIRONMENTS, "again": Judged}) == [
        "no model for the role user: no key"
    ]
    with pytest.raises(UsageError, match=r"judged needs a model for the role judge: no key$"):
        check_missing({"judge": "no key"}, ENVIRONMENTS)


PROMPT = [Message(role="user", content="Is it good?")]


class OnlyJudged(Environment[Task]):
    """Asks a judge."""

    required_roles = ("judge",)


class Asking:
    """A judge on a server; each attempt that asks it counts its own usage."""

    def __init__(self, server, stack, verdicts):
        self._server = server
        self._stack = stack
        self._verdicts = verdicts
        self.uses = []

    async def judge(self, **options):
        """Return models for a new client of the judge."""
        endpoint = Endpoint(base_url=self._server.base_url, model="j", max_attempts=1, **options)
        pool = await self._stack.enter_async_context(ModelPool(8))
        return self.models(endpoint, pool)

    def models(self, endpoint, pool):
        return RoleModels({"judge": endpoint}, pool=pool, verdicts=self._verdicts)

    def model(self, models):
        use = {}
        self.uses.append(use)
        return models.of(OnlyJudged, {}, use)["judge"]

    def total(self):
        total = RoleUse()
        for use in self.uses:
            for one in use.values():
                total.add(one)
        return total


def asked(behaviour, use, *, verdicts=None):
    """Run `use(asking)` against a server; return its result and the server."""

    async def run():
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(MockServer(behaviour))
            asking = Asking(server, stack, verdicts or Verdicts())
            return await use(asking), server

    return asyncio.run(run())


def refusing_at(*numbers):
    count = itertools.count(1)

    def behave(request):
        return refusal_of(400, "no") if next(count) in numbers else "[[GOOD]]"

    return behave


def slow_at_first(started):
    """Stall on the first request, which sets `started`, and answer the others."""

    def behave(request):
        if started.is_set():
            return "[[GOOD]]"
        started.set()
        return MockAnswer(text="[[LATE]]", delay=60.0)

    return behave


def test_equal_requests_at_the_same_time_are_one_call():
    async def use(asking):
        models = await asking.judge()
        asks = [asking.model(models).complete(PROMPT, cache="1") for _ in range(5)]
        return await asyncio.gather(*asks), asking.total()

    (messages, total), server = asked(lambda request: "[[GOOD]]", use)
    assert [message.text for message in messages] == ["[[GOOD]]"] * 5
    assert server.num_requests == 1
    assert (total.num_calls, total.num_cached, total.num_failed) == (1, 4, 0)


def test_equal_requests_at_the_same_time_fail_together():
    """No request repeats the retries of another, and a later request is a new call."""

    async def use(asking):
        models = await asking.judge()
        asks = [asking.model(models).complete(PROMPT, cache="1") for _ in range(5)]
        errors = await asyncio.gather(*asks, return_exceptions=True)
        failed = asking.total()
        again = await asking.model(models).complete(PROMPT, cache="1")
        return errors, failed, again

    (errors, failed, again), server = asked(refusing_at(1), use)
    assert [type(error) for error in errors] == [RoleError] * 5
    assert {type(error.__cause__) for error in errors} == {RequestRefusedError}
    assert (failed.num_calls, failed.num_cached, failed.num_failed) == (0, 0, 1)
    assert again.text == "[[GOOD]]"
    assert server.num_requests == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (MockAnswer(text="[[GOOD]] be", finish_reason="length"), "was cut at its token limit"),
        (MockAnswer(text="[[GOOD]]", finish_reason="content_filter"), "was filtered"),
        (MockAnswer(refusal="I cannot judge that."), "is a refusal: I cannot judge that."),
        (MockAnswer(text=" \n"), "is empty"),
    ],
)
@pytest.mark.parametrize("cache", ["1", None])
def test_an_answer_that_is_none_is_a_failure_and_not_kept(tmp_path, answer, words, cache):
    verdicts = Verdicts(tmp_path)

    async def use(asking):
        models = await asking.judge()
        with pytest.raises(RoleError, match=words) as caught:
            await asking.model(models).complete(PROMPT, cache=cache)
        again = await asking.model(models).complete(PROMPT, cache=cache)
        return caught.value, again, asking.total()

    (error, again, total), server = asked(in_order(answer, "[[BAD]]"), use, verdicts=verdicts)
    verdicts.close()
    assert error.is_answered
    assert (again.text, server.num_requests) == ("[[BAD]]", 2)
    assert (total.num_calls, total.num_failed, total.num_cached) == (2, 1, 0)
    kept = tmp_path / "verdicts.jsonl"
    assert (kept.read_bytes().count(b"\n") if kept.exists() else 0) == (cache is not None)


def test_an_answer_that_is_not_to_be_kept_is_asked_for_again(tmp_path):
    """Requests that wait for it still receive it; a recorded one is ignored."""
    cache = Cache("1", keeps=lambda message: message.text == "[[GOOD]]")

    async def use(asking):
        models = await asking.judge()
        kept_by_text = await asking.model(models).complete(PROMPT, cache="1")
        asks = [asking.model(models).complete(PROMPT, cache=cache) for _ in range(3)]
        answers = [kept_by_text, *await asyncio.gather(*asks)]
        for _ in range(2):
            answers.append(await asking.model(models).complete(PROMPT, cache=cache))
        return [answer.text for answer in answers]

    texts, server = asked(in_order("hm", "well", "[[GOOD]]"), use)
    assert texts == ["hm", "well", "well", "well", "[[GOOD]]", "[[GOOD]]"]
    assert server.num_requests == 3


def test_everybody_gets_the_answer_in_the_form_that_is_kept():
    """A score must not depend on who asked first."""
    answer = MockAnswer(text="[[GOOD]]", reasoning="Hm.")

    async def use(asking):
        models = await asking.judge()
        return [await asking.model(models).complete(PROMPT, cache="1") for _ in range(2)]

    answers, _ = asked(lambda request: answer, use)
    assert answers == [Message(role="assistant", content="[[GOOD]]")] * 2


def test_parameters_of_the_role_win_over_those_of_the_environment_and_the_endpoint():
    async def use(asking):
        models = await asking.judge(params={"a": 1, "b": 1, "c": 1, "max_tokens": 1})
        models.params = {"judge": {"c": 3}}
        params = {"b": 2, "c": 2, "max_completion_tokens": 2}
        return await asking.model(models).complete(PROMPT, params=params)

    _, server = asked(lambda request: "[[GOOD]]", use)
    body = server.requests[0].body
    assert {name: body.get(name) for name in ("a", "b", "c")} == {"a": 1, "b": 2, "c": 3}
    assert (body.get("max_tokens"), body["max_completion_tokens"]) == (None, 2)


@pytest.mark.parametrize("params", [{"logprobs": True}, {"top_logprobs": 3}])
def test_log_probabilities_of_an_answer_that_is_kept_are_refused(params):
    async def use(asking):
        models = await asking.judge()
        with pytest.raises(UsageError, match="judge: cached answers have no log prob"):
            await asking.model(models).complete(PROMPT, params=params, cache="1")
        await asking.model(models).complete(PROMPT, params=params)
        await asking.model(models).complete(PROMPT, params={"logprobs": False}, cache="1")

    _, server = asked(lambda request: "[[GOOD]]", use)
    assert server.num_requests == 2


def test_the_next_one_asks_where_the_first_was_cancelled():
    started = asyncio.Event()

    async def use(asking):
        models = await asking.judge()
        first, *others = [
            asyncio.create_task(asking.model(models).complete(PROMPT, cache="1")) for _ in range(4)
        ]
        await started.wait()
        first.cancel()
        messages = await asyncio.gather(*others)
        return first.cancelled(), messages, asking.total()

    (is_cancelled, messages, total), server = asked(slow_at_first(started), use)
    assert is_cancelled
    assert [message.text for message in messages] == ["[[GOOD]]"] * 3
    assert server.num_requests == 2
    assert (total.num_calls, total.num_cached) == (1, 2)


def test_who_waits_may_be_cancelled_without_the_others():
    async def use(asking):
        models = await asking.judge()
        first, waiter, other = [
            asyncio.create_task(asking.model(models).complete(PROMPT, cache="1")) for _ in range(3)
        ]
        await asyncio.sleep(0)
        waiter.cancel()
        messages = await asyncio.gather(first, other)
        return waiter.cancelled(), messages

    (is_cancelled, messages), server = asked(lambda request: "[[GOOD]]", use)
    assert is_cancelled
    assert [message.text for message in messages] == ["[[GOOD]]"] * 2
    assert server.num_requests == 1


def test_an_answer_that_cannot_be_kept_is_paid_for_once(tmp_path):
    """The error ends the run for all who wait; otherwise each would ask again."""
    (tmp_path / "verdicts.jsonl").symlink_to(tmp_path / "gone" / "verdicts.jsonl")

    async def use(asking):
        models = await asking.judge()
        asks = [asking.model(models).complete(PROMPT, cache="1") for _ in range(4)]
        return await asyncio.gather(*asks, return_exceptions=True)

    errors, server = asked(lambda request: "[[GOOD]]", use, verdicts=Verdicts(tmp_path))
    assert [type(error) for error in errors] == [RunDirectoryError] * 4
    assert server.num_requests == 1


def test_a_dialect_is_part_of_what_an_answer_depends_on():
    """The same name may be another model behind another wire format."""

    async def use(asking):
        numbers = []
        for dialect in ("chat", "responses", "responses", "chat"):
            models = await asking.judge(dialect=dialect)
            await asking.model(models).complete(PROMPT, cache="1")
            numbers.append(asking.total().num_calls)
        return numbers

    numbers, _ = asked(lambda request: "[[GOOD]]", use)
    assert numbers == [1, 2, 2, 2]


async def score_nobody(cls, rollouts, context):
    return []


@pytest.mark.parametrize(
    ("attributes", "roles", "expected"),
    [
        ({}, ("judge",), False),
        ({"required_roles": ("judge",)}, ("judge",), True),
        ({"optional_roles": ("judge",)}, ("judge",), True),
        ({"optional_roles": ("judge",)}, ("user",), False),
        ({"waits_to_verify": True}, (), True),
        ({"verify_group": classmethod(score_nobody)}, (), True),
    ],
)
def test_waits_to_score(attributes, roles, expected):
    assert waits_to_score(type("Made", (Environment,), attributes), roles) is expected


@pytest.mark.parametrize("is_closed", [True, False])
def test_schema_is_strict_where_it_is_closed(is_closed):
    schema = {"type": "object", "properties": {}, "additionalProperties": not is_closed}

    async def use(asking):
        return await asking.model(await asking.judge()).complete(PROMPT, schema=schema)

    _, server = asked(lambda request: "{}", use)
    assert server.requests[0].body["response_format"]["json_schema"]["strict"] is is_closed


@pytest.mark.slow
async def test_complete_counts_what_was_tried_again():
    """Both for calls that are answered in the end and for calls that fail."""
    answers = [refusal_of(500, "oops"), "yes", *[refusal_of(500, "oops")] * 2]
    async with MockServer(in_order(*answers)) as server, ModelPool(8) as pool:
        endpoint = Endpoint(base_url=server.base_url, model="j", max_attempts=2)
        models = RoleModels({"judge": endpoint}, pool=pool, verdicts=Verdicts(None))
        use = {}
        judge = models.of(OnlyJudged, {}, use)["judge"]
        assert (await judge.complete(PROMPT)).text == "yes"
        with pytest.raises(RoleError):
            await judge.complete(PROMPT)
        total = use["judge"]
    assert (total.num_calls, total.num_failed) == (1, 1)
    assert total.retries == {"ServerError": 2}


async def test_pool_shares_the_limits_of_an_address():
    """Two models behind one address share its limit of requests under way."""
    async with MockServer(latency=0.01) as server, ModelPool(3) as pool:
        clients = [
            await pool.client(Endpoint(base_url=server.base_url, model=name)) for name in "ab"
        ]
        request = Request(messages=PROMPT)
        asked = [client.answer(request) for client in clients for _ in range(8)]
        await asyncio.gather(*asked)
        assert (server.max_in_flight, pool.num_outages, pool.outage_seconds) == (3, 0, 0)
