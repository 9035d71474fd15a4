"""gym.toml, and the order in which endpoints are found."""

from pathlib import Path

import pytest

from gymcli.errors import ConfigError, UsageError
from gymcli.models.endpoint import Limits
from gymcli.models.settings import Settings, load_settings, resolve_endpoint

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
    big = load_settings(path).models["big"]
    assert big.limits == Limits(requests_per_minute=100)
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
        ("[models.big]", "models.big.base_url: Field required"),
        (
            '[models.big]\nbase_url = "host"',
            "models.big.base_url: the base URL must look like https://host/v1",
        ),
        ("models =", "not TOML"),
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


def test_load_settings_without_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_settings() == Settings()
    with pytest.raises(ConfigError, match="there is no such file"):
        load_settings(tmp_path / "other.toml")


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
    """Unless the option for the key names it."""
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


def test_resolve_endpoint_guesses_the_table():
    with pytest.raises(UsageError, match=r'model bigg \(did you mean "big" of gym.toml'):
        resolve("bigg", models={"big": TABLE})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"base_url": "nowhere"}, "base_url: the base URL must look like"),
        ({"base_url": "http://[/v1"}, "base_url: the base URL cannot be read"),
        ({"base_url": "http://host:port"}, "base_url: the base URL cannot be read"),
        ({"base_url": "http://h", "dialect": "latin"}, "dialect: Input should be 'chat'"),
    ],
)
def test_resolve_endpoint_refuses_what_cannot_be(options, complaint):
    with pytest.raises(UsageError, match=complaint):
        resolve("m", **options)


def test_resolve_endpoint_shows_no_address_that_lacks_a_model():
    with pytest.raises(UsageError, match="the endpoint needs the name of a model") as raised:
        resolve(base_url="http://user:hush@h/v1")
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
            "limits.max_concurrency: Input should be greater than or equal to 1",
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
    with pytest.raises(UsageError, match="name a proxy for all of them"):
        resolve(
            "m",
            base_url=["http://near:1", "http://far:1"],
            HTTP_PROXY="http://proxy:1",
            NO_PROXY="near",
        )
