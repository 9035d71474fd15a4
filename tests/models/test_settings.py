"""gym.toml, environment variables, and the endpoints that they configure."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from gymcli.errors import ConfigError, FatalEndpointError, UsageError
from gymcli.mock import MockServer
from gymcli.models.endpoint import Endpoint, EndpointLimits, merged_params
from gymcli.models.http import MAX_ANSWER_BYTES
from gymcli.models.settings import (
    Settings,
    load_settings,
    proxy_for,
    resolve_endpoint,
    served_model,
    settings_file,
)
from gymcli.types import Usage

TABLE = {"base_url": "http://named:1/v1"}


def resolve(model=None, *, base_url=None, api_key_env=None, dialect=None, models=None, **environ):
    return resolve_endpoint(
        model,
        base_url=base_url,
        api_key_env=api_key_env,
        dialect=dialect,
        settings=Settings.model_validate({"models": models or {}}),
        environ=environ,
    )


def key_of(endpoint) -> str | None:
    return endpoint.api_key.get_secret_value() if endpoint.api_key else None


def write(folder: Path, text: str) -> Path:
    path = folder / "gym.toml"
    path.write_text(text)
    return path


def test_load_settings_reads_everything(tmp_path):
    path = write(
        tmp_path,
        """
        [models.big]
        base_url = "https://host/v1/"
        model = "org/big-1"
        api_key_env = "BIG_KEY"
        dialect = "responses"
        stream = true
        emulate_tools = true
        send_reasoning = "reasoning"
        headers = {X-Team = "blue-team"}
        query = {api-version = "2"}
        proxy = "http://proxy:3128"
        ca_file = "authority.pem"
        connect_timeout = 1
        total_timeout = 2
        idle_timeout = 3
        max_attempts = 4
        retry_deadline = 5
        max_retry_after = 6
        limits = {requests_per_minute = 100}
        prices = {prompt = 0.5, completion = 1.5}
        """,
    )
    assert load_settings(path).models["big"].limits == EndpointLimits(requests_per_minute=100)
    endpoint = resolve_endpoint(
        "big",
        base_url=None,
        api_key_env=None,
        dialect=None,
        settings=load_settings(path),
        environ={"BIG_KEY": "the-key\n"},
    )
    assert endpoint.model == "org/big-1"
    assert endpoint.base_url == "https://host/v1"
    assert key_of(endpoint) == "the-key"
    assert endpoint.headers["X-Team"].get_secret_value() == "blue-team"
    assert endpoint.ca_file == tmp_path / "authority.pem"
    assert (endpoint.dialect, endpoint.stream, endpoint.emulate_tools) == ("responses", True, True)
    assert (endpoint.proxy, endpoint.query) == ("http://proxy:3128", {"api-version": "2"})
    assert (endpoint.connect_timeout, endpoint.max_attempts) == (1, 4)


def test_load_settings_has_defaults(tmp_path):
    path = write(tmp_path, '[models.big]\nbase_url = "http://h"')
    big = load_settings(path).models["big"]
    assert (big.model, big.ca_file, big.dialect, big.max_attempts) == (None, None, "chat", 6)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            '[models.big]\nbase_url = "http://h"\ndialekt = "chat"',
            'models.big.dialekt: unknown key (did you mean "dialect"?)',
        ),
        ("[model.big]", 'model: unknown key (did you mean "models"?)'),
        ("[quux]", "quux: unknown key"),
        ("[models.big]", "models.big.base_url: is missing"),
        (
            '[models.big]\nbase_url = "host"',
            "models.big.base_url: the base URL must look like https://host/v1",
        ),
        ("models =", "not TOML"),
        (f"a = {'[' * 5000}", "not TOML"),
        (
            '[models.big]\nbase_url = "http://h"\nparams = {stream = true}',
            "models.big.params: stream is not a sampling parameter; gymcli sets it itself",
        ),
        (
            '[models.big]\nbase_url = "http://h"\nparams = {day = 2026-01-01}',
            "models.big.params: day must be a value that JSON has",
        ),
        (
            '[models.big]\nbase_url = "http://h"\ntop_p = 1\nparams = {top_p = 0.5}',
            "models.big: top_p is set twice; take it out of params",
        ),
        (
            '[models.big]\nbase_url = "http://h"\ntemperature = true',
            "models.big.temperature: is not a number",
        ),
        (
            '[models.big]\nbase_url = "http://h"\nmax_tokens = "9"',
            "models.big.max_tokens: is not a whole number",
        ),
        ("[collect]\nrepeat = 4", 'collect.repeat: unknown key (did you mean "repeats"?)'),
        ('[collect]\nout = "runs/mine"', "collect.out: unknown key"),
        ("[collect]\ntop_p = 1", "collect.top_p: unknown key (it belongs to [models.NAME])"),
        ('[collect]\nrepeats = "4"', "collect.repeats: "),
        ("[collect]\nrepeats = 2.5", "collect.repeats: "),
        ("[collect]\ngate = [1]", "collect.gate.0: "),
    ],
)
def test_load_settings_names_file_key_and_way_out(tmp_path, text, complaint):
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_settings(path)
    assert str(raised.value).startswith(f"{path}: {complaint}")


def test_load_settings_lists_every_mistake_and_no_value(tmp_path):
    path = write(tmp_path, '[models.big]\nbase_url = "http://u:hush@h"\nkey = "hush"\nstream = 7')
    with pytest.raises(ConfigError) as raised:
        load_settings(path)
    assert len(str(raised.value).splitlines()) == 3
    assert "hush" not in str(raised.value)


def test_load_settings_skips_a_byte_order_mark(tmp_path):
    path = write(tmp_path, "\ufeff[models.big]\r\nbase_url = 'http://h'\r\n")
    assert load_settings(path).models["big"].base_url == ("http://h",)
    path.write_text("[models]", encoding="utf-16")
    with pytest.raises(ConfigError, match=r"gym\.toml: is UTF-16 text"):
        load_settings(path)


def test_load_settings_without_file(tmp_path, working_folder):
    assert load_settings() == Settings()
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_settings(tmp_path / "other.toml")


def test_request_params_are_those_of_the_table():
    table = {**TABLE, "temperature": 0, "max_tokens": 9, "params": {"top_k": 5}}
    endpoint = resolve("big", models={"big": table})
    assert endpoint.params == {"temperature": 0.0, "max_tokens": 9, "top_k": 5}
    assert resolve("big", models={"big": TABLE}).params == {}
    assert resolve("big", base_url="http://h", models={"big": table}).params == {}


def test_merged_params_knows_the_names_of_a_token_limit():
    assert merged_params({"max_tokens": 1, "a": 1}, {"max_completion_tokens": 2}, {"a": 3}) == {
        "max_completion_tokens": 2,
        "a": 3,
    }


@pytest.mark.parametrize("name", ["proj", "proj/deep", "proj/deep/deeper"])
def test_settings_are_found_upwards(tmp_path, monkeypatch, name):
    """With the names of files relative to the file that was found."""
    folder = tmp_path / name
    folder.mkdir(parents=True)
    write(
        tmp_path / "proj",
        """
        [models.big]
        base_url = "http://h"
        ca_file = "authority.pem"
        [roles]
        judge = "local:weights/judge.gguf"
        user = "big"
        [collect]
        model = "local:~/policy.gguf"
        """,
    )
    monkeypatch.chdir(folder)
    settings = load_settings()
    assert settings_file().resolve() == tmp_path / "proj" / "gym.toml"
    assert settings.models["big"].ca_file.resolve() == tmp_path / "proj" / "authority.pem"
    judge = Path(settings.roles["judge"].removeprefix("local:"))
    assert judge.resolve() == tmp_path / "proj" / "weights" / "judge.gguf"
    assert (settings.roles["user"], settings.collect.model) == ("big", ["local:~/policy.gguf"])


def test_the_nearest_settings_count(tmp_path, monkeypatch):
    folder = tmp_path / "deep"
    folder.mkdir()
    write(tmp_path, "[roles]\njudge = 'far'")
    monkeypatch.chdir(folder)
    assert load_settings().roles == {"judge": "far"}
    write(folder, "[roles]\nuser = 'near'")
    assert load_settings().roles == {"user": "near"}


@pytest.mark.parametrize("stop", [".git", "home", "writable"])
def test_the_search_for_settings_ends(tmp_path, monkeypatch, stop):
    """With .git and at home; nobody's file in a folder that anyone may write to is read."""
    top, folder = tmp_path / "top", tmp_path / "top" / "work"
    folder.mkdir(parents=True)
    write(top, "[roles]\njudge = 'far'")
    monkeypatch.chdir(folder)
    assert settings_file() == Path("../gym.toml")
    if stop == ".git":
        (folder / ".git").touch()  # a file in a work tree, else a folder
    elif stop == "home":
        monkeypatch.setenv("HOME", str(folder))
    else:
        top.chmod(0o777)
    assert settings_file() is None
    write(folder, "")
    assert settings_file() == Path("gym.toml")


def test_settings_of_a_deleted_folder(tmp_path, working_folder, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert load_settings() == Settings()


def test_load_settings_unreadable(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path)


def test_resolve_endpoint_prefers_base_url_over_all():
    endpoint = resolve(
        "big",
        base_url="http://given/v1/",
        models={"big": TABLE},
        OPENAI_BASE_URL="http://variable",
        OPENAI_API_KEY="openai-key",
    )
    assert (endpoint.base_url, endpoint.model) == ("http://given/v1", "big")


def test_resolve_endpoint_prefers_table_over_variable():
    endpoint = resolve("big", models={"big": TABLE}, OPENAI_BASE_URL="http://variable")
    assert (endpoint.base_url, endpoint.model) == ("http://named:1/v1", "big")


def test_resolve_endpoint_takes_variable():
    endpoint = resolve("m", OPENAI_BASE_URL="http://variable/v1", OPENAI_API_KEY="openai-key")
    assert (endpoint.base_url, key_of(endpoint)) == ("http://variable/v1", "openai-key")


def test_resolve_endpoint_takes_the_openai_api():
    endpoint = resolve("gpt", OPENAI_API_KEY="openai-key", HTTPS_PROXY="http://proxy:1")
    assert (endpoint.base_url, key_of(endpoint)) == ("https://api.openai.com/v1", "openai-key")
    assert endpoint.proxy == "http://proxy:1"


@pytest.mark.parametrize(
    ("options", "environ", "key"),
    [
        ({}, {"OPENAI_API_KEY": "openai-key"}, None),
        ({"api_key_env": "MINE"}, {"OPENAI_API_KEY": "openai-key", "MINE": "my-key"}, "my-key"),
    ],
)
def test_resolve_endpoint_sends_a_table_no_foreign_key(options, environ, key):
    assert key_of(resolve("big", models={"big": TABLE}, **options, **environ)) == key


def test_resolve_endpoint_prefers_the_key_option():
    endpoint = resolve(
        "m", base_url="http://h", api_key_env="MINE", OPENAI_API_KEY="openai-key", MINE="my-key"
    )
    assert key_of(endpoint) == "my-key"


@pytest.mark.parametrize("address", ["http://h", "https://api.openai.com/v1", "http://variable"])
def test_resolve_endpoint_sends_the_openai_key_to_no_address_of_the_option(address):
    """Unless --api-key-env names it."""
    environ = {"OPENAI_API_KEY": "openai-key", "OPENAI_BASE_URL": "http://variable"}
    assert key_of(resolve("m", base_url=address, **environ)) is None
    named = resolve("m", base_url=address, api_key_env="OPENAI_API_KEY", **environ)
    assert key_of(named) == "openai-key"


@pytest.mark.parametrize("more", [{}, {"OPENAI_BASE_URL": "http://variable"}])
def test_resolve_endpoint_prefers_the_key_option_without_an_address(more):
    environ = {"OPENAI_API_KEY": "openai-key", "MINE": "my-key", **more}
    assert key_of(resolve("m", api_key_env="MINE", **environ)) == "my-key"


def test_resolve_endpoint_needs_no_key():
    assert key_of(resolve("m", base_url="http://h")) is None


@pytest.mark.parametrize(
    ("options", "models"),
    [({"base_url": "http://h", "api_key_env": "MINE"}, {}), ({}, {"m": "MINE"})],
)
def test_resolve_endpoint_names_a_missing_key_variable(options, models):
    tables = {name: {**TABLE, "api_key_env": variable} for name, variable in models.items()}
    with pytest.raises(UsageError, match="environment variable MINE"):
        resolve("m", models=tables, **options, OPENAI_API_KEY="openai-key")


def test_resolve_endpoint_takes_the_dialect_option_over_the_table():
    models = {"big": {**TABLE, "dialect": "responses", "proxy": "http://own:1"}}
    endpoint = resolve("big", models=models, dialect="chat", http_proxy="http://other:1")
    assert (endpoint.dialect, endpoint.proxy) == ("chat", "http://own:1")


@pytest.mark.parametrize(
    ("options", "environ"), [({"base_url": "http://h"}, {}), ({}, {"OPENAI_BASE_URL": "http://h"})]
)
def test_resolve_endpoint_needs_a_model(options, environ):
    with pytest.raises(UsageError, match="the endpoint needs the name of a model: --model NAME"):
        resolve(**options, **environ)


@pytest.mark.parametrize("environ", [{}, {"OPENAI_API_KEY": "openai-key"}])
def test_resolve_endpoint_without_anything_gives_three_ways_out(environ):
    with pytest.raises(UsageError) as raised:
        resolve(**environ)
    text = str(raised.value)
    assert "\n" not in text
    ways = [text.index(way) for way in ("--model local", "--base-url", "OPENAI_API_KEY")]
    assert ways == sorted(ways)


@pytest.mark.parametrize("environ", [{}, {"OPENAI_API_KEY": "openai-key"}])
@pytest.mark.parametrize("model", [None, "m"])
def test_resolve_endpoint_names_the_older_variable(model, environ):
    """The key may be for that server alone, so it is not sent to the OpenAI API either."""
    with pytest.raises(UsageError) as raised:
        resolve(model, OPENAI_API_BASE="http://older/v1", **environ)
    assert "OPENAI_API_BASE is not read, set OPENAI_BASE_URL instead; or use --" in str(
        raised.value
    )
    assert "older" not in str(raised.value)


@pytest.mark.parametrize("older", ["", "https://api.openai.com/v1", "https://api.openai.com/v1/"])
def test_resolve_endpoint_reaches_openai_whatever_names_it(older):
    endpoint = resolve("gpt", OPENAI_API_KEY="openai-key", OPENAI_API_BASE=older)
    assert endpoint.base_url == "https://api.openai.com/v1"


def test_resolve_endpoint_needs_the_older_variable_for_nothing():
    environ = {"OPENAI_API_BASE": "http://older", "OPENAI_BASE_URL": "http://newer"}
    assert resolve("m", **environ).base_url == "http://newer"
    assert resolve("m", base_url="http://option", **environ).base_url == "http://option"


def test_resolve_endpoint_guesses_the_table():
    with pytest.raises(UsageError, match=r'model bigg \(did you mean "big" of gym.toml'):
        resolve("bigg", models={"big": TABLE})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"base_url": "nowhere"}, "base_url: the base URL must look like"),
        ({"base_url": "http://[/v1"}, "base_url: the base URL cannot be read"),
        ({"base_url": "http://host:port"}, "base_url: the base URL cannot be read"),
        ({"base_url": "http://h", "dialect": "latin"}, "dialect: must be 'chat'"),
    ],
)
def test_resolve_endpoint_refuses_what_cannot_be(options, complaint):
    with pytest.raises(UsageError, match=complaint):
        resolve("m", **options)


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("http://hush/v1", "the endpoint needs the name of a model"),
        ("http://user:hush@h/v1", "must not carry a user or password"),
    ],
)
def test_resolve_endpoint_shows_no_address_that_lacks_a_model(address, complaint):
    with pytest.raises(UsageError, match=complaint) as raised:
        resolve(base_url=address)
    assert "hush" not in str(raised.value)


def test_load_settings_takes_several_addresses(tmp_path):
    path = write(tmp_path, '[models.big]\nbase_url = ["http://a/v1/", "http://b/v1"]')
    assert load_settings(path).models["big"].base_url == ("http://a/v1", "http://b/v1")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("base_url = []", "base_url: the list of addresses is empty"),
        ("base_url = [1]", "base_url: must be an address, or a list of addresses"),
        ('base_url = ["http://a", "b"]', "base_url: the base URL must look like https://host/v1"),
        (
            'base_url = "http://a"\nlimits = {requests_per_minutes = 1}',
            'limits.requests_per_minutes: unknown key (did you mean "requests_per_minute"?)',
        ),
        (
            'base_url = "http://a"\nlimits = {max_concurrency = 0}',
            "limits.max_concurrency: must be 1 or more",
        ),
    ],
)
def test_load_settings_refuses_addresses_and_limits(tmp_path, text, complaint):
    path = write(tmp_path, f"[models.big]\n{text}")
    with pytest.raises(ConfigError) as raised:
        load_settings(path)
    assert str(raised.value) == f"{path}: models.big.{complaint}"


@pytest.mark.parametrize("is_named", [True, False])
def test_resolve_endpoint_of_several_addresses(is_named):
    addresses = ["http://a/v1", "http://b/v1/", "http://a/v1/"]
    models = {"big": {"base_url": addresses}} if is_named else {}
    endpoint = resolve("big", base_url=None if is_named else addresses, models=models)
    assert endpoint.base_url == "http://a/v1"
    assert endpoint.replicas == ("http://b/v1",)
    assert endpoint.addresses == ("http://a/v1", "http://b/v1")


def test_resolve_endpoint_refuses_addresses_behind_different_proxies():
    with pytest.raises(UsageError, match="name one proxy for all of them"):
        resolve(
            "m",
            base_url=["http://near:1", "http://far:1"],
            HTTP_PROXY="http://proxy:1",
            NO_PROXY="near",
        )


BOTH = {"HTTP_PROXY": "http://plain:1", "HTTPS_PROXY": "http://secure:2"}


@pytest.mark.parametrize(
    ("base_url", "environ", "proxy"),
    [
        ("https://api.example/v1", {}, None),
        ("https://api.example/v1", BOTH, "http://secure:2"),
        ("http://api.example/v1", BOTH, "http://plain:1"),
        ("https://api.example/v1", {**BOTH, "https_proxy": "http://lower:3"}, "http://lower:3"),
        ("https://api.example/v1", {"HTTPS_PROXY": "host:3128"}, "http://host:3128"),
        ("https://api.example/v1", {**BOTH, "NO_PROXY": "other, .example"}, None),
        ("https://api.example/v1", {**BOTH, "no_proxy": "API.example"}, None),
        ("https://api.example/v1", {**BOTH, "NO_PROXY": "*"}, None),
        ("https://api.example/v1", {**BOTH, "NO_PROXY": "pi.example,"}, "http://secure:2"),
        ("https://api.example:8/v1", {**BOTH, "NO_PROXY": "api.example:8"}, None),
        ("https://api.example:8/v1", {**BOTH, "NO_PROXY": "api.example:9"}, "http://secure:2"),
        ("http://localhost:8000/v1", BOTH, None),
        ("http://127.0.0.1:8000/v1", BOTH, None),
        ("http://[::1]:8000/v1", BOTH, None),
        ("http://10.0.0.1:8000/v1", BOTH, "http://plain:1"),
    ],
)
def test_proxy_for(base_url, environ, proxy):
    assert proxy_for(base_url, environ) == proxy


def asked_of(body, status=200, path="/v1"):
    """Ask a server that returns this body as its list of models."""

    async def run():
        async def answer(request):
            return web.Response(text=body, status=status, content_type="application/json")

        application = web.Application()
        application.router.add_get("/v1/models", answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            address = f"http://127.0.0.1:{runner.addresses[0][1]}{path}"
            return await served_model(address)
        finally:
            await runner.cleanup()

    return asyncio.run(run())


async def test_served_model_gives_the_only_one():
    async with MockServer() as server:
        assert await served_model(server.base_url) == "mock"


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ('{"data": [{"id": "a"}, {"id": "b"}]}', 200, "serves a, b"),
        ('{"data": []}', 200, "serves no model"),
        ("oops", 200, "status 200, not a list of models"),
        ('{"error": {"message": "key?"}}', 401, "status 401, not a list of models"),
    ],
)
def test_served_model_says_how_to_name_one(body, status, message):
    with pytest.raises(UsageError, match=message) as caught:
        asked_of(body, status)
    assert str(caught.value).endswith("; name the model after the address: URL#MODEL")


def test_served_model_looks_below_v1_as_well():
    """A reward model's address ends before /v1: http://host/classify."""
    assert asked_of('{"data": [{"id": "rm"}]}', path="") == "rm"


def test_served_model_tells_an_endpoint_that_is_not_there():
    told = (
        r"GET http://127\.0\.0\.1:9/v1/models: .*; is the server running, and the address right\?"
    )
    with pytest.raises(FatalEndpointError, match=told):
        asyncio.run(served_model("http://127.0.0.1:9/v1"))
    with pytest.raises(FatalEndpointError, match="/v1/models: status 503"):
        asked_of("down", 503)


@pytest.mark.parametrize("address", ["http://user:hush@{host}/v1", "http://{host}/v1?key=hush"])
def test_served_model_asks_no_address_that_may_hold_a_secret(mock_server, address):
    host = mock_server.base_url.removeprefix("http://").removesuffix("/v1")
    with pytest.raises(UsageError, match="the base URL must") as caught:
        asyncio.run(served_model(address.format(host=host)))
    assert "hush" not in str(caught.value)
    assert mock_server.num_requests == 0


def test_served_model_reads_no_body_without_end():
    with pytest.raises(UsageError, match="longer than 64 MiB"):
        asked_of(" " * (MAX_ANSWER_BYTES + 1), 200)


KEY = "sk-very-secret-key"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        (" https://host/v1// ", "https://host/v1"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_endpoint_takes_base_urls(given, kept):
    assert Endpoint(base_url=given, model="m").base_url == kept


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "localhost:8000",
        "ftp://host/v1",
        "http:///v1",
        "http://host:port/v1",
        "http://[::1/v1",
        "https://host/v1?api-version=1",
        "https://host/v1#top",
        f"https://user:{KEY}@host/v1",
        f"https://{KEY}@host/v1",
    ],
)
def test_endpoint_refuses_base_urls_and_shows_none(base_url):
    with pytest.raises(UsageError) as raised:
        Endpoint(base_url=base_url, model="m")
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": f"{KEY}\nX-Other: 1"},
        {"api_key": "schlüssel"},
        {"headers": {"X-Key": f"{KEY}\r\n"}},
        {"headers": {"X Key": "1"}},
        {"headers": {"": "1"}},
        {"proxy": "socks5://host:1"},
        {"model": ""},
        {"max_attempts": 0},
        {"total_timeout": 0},
        {"dialekt": "chat"},
    ],
)
def test_endpoint_refuses(options):
    with pytest.raises(UsageError) as raised:
        Endpoint(**{"base_url": "http://host", "model": "m", **options})
    assert KEY not in str(raised.value)


def test_endpoint_shows_no_secret():
    endpoint = Endpoint(
        base_url="http://host",
        model="m",
        api_key=KEY,
        headers={"X-Key": "header-secret"},
        query={"key": "query-secret"},
        proxy="http://user:proxy-secret@host:1",
    )
    for shown in (repr(endpoint), str(endpoint)):
        assert KEY not in shown
        assert "secret" not in shown
    assert {KEY, "header-secret", "query-secret", "proxy-secret"} <= set(endpoint.secrets)


def test_secrets_hold_the_credential_of_a_header_too():
    endpoint = Endpoint(
        base_url="http://host", model="m", headers={"Authorization": f"Basic {KEY}"}
    )
    assert endpoint.secrets == (f"Basic {KEY}", KEY)


def test_secrets_leave_switches_out():
    assert Endpoint(base_url="http://host", model="m", query={"beta": "1"}).secrets == ()


@pytest.mark.parametrize(
    "name",
    [
        "connect_timeout",
        "total_timeout",
        "idle_timeout",
        "retry_deadline",
        "max_retry_after",
        "outage_deadline",
    ],
)
@pytest.mark.parametrize("seconds", [float("inf"), float("nan")])
def test_endpoint_waits_for_nothing_for_ever(name, seconds):
    with pytest.raises(UsageError, match=name):
        Endpoint(base_url="http://h", model="m", **{name: seconds})


@pytest.mark.parametrize(("cached", "cost"), [(0, 20.0), (4, 14.0), (10, 5.0), (1000, 520.0)])
def test_cost_is_never_negative(cached, cost):
    """Some endpoints do not count cached tokens as a part of the prompt's."""
    prices = {"prompt": 2e6, "completion": 0.0, "cached": 0.5e6}
    endpoint = Endpoint(base_url="http://h", model="m", prices=prices)
    assert endpoint.cost(Usage(prompt_tokens=10, cached_tokens=cached)) == cost
