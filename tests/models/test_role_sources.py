"""Who plays a role, from the text of an option or of gym.toml."""

from importlib.util import find_spec

import pytest

from gymcli.errors import UsageError
from gymcli.models.endpoint import Endpoint
from gymcli.models.local_model import model_name
from gymcli.models.roles import needs_model, role_identity, role_name, role_sources, spec_of
from gymcli.models.settings import ModelSettings, Settings
from gymcli.types import Usage

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
        ("http://127.0.0.1:3/v1", "name the model behind the address: URL#MODEL"),
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
    """It may hold a key or a password."""
    with pytest.raises(UsageError, match=message) as caught:
        source_of(spec, {})
    assert str(caught.value).startswith("--role judge: ")
    assert "hush" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)


def test_role_sources_says_how_a_role_gets_a_model():
    """The options of the policy, which the same search serves, are no way out for a role."""
    with pytest.raises(UsageError) as caught:
        source_of("bigg", {})
    assert str(caught.value) == (
        '--role judge=bigg: no endpoint for model bigg (did you mean "big" of gym.toml?): give a '
        "name of [models] in gym.toml, URL#MODEL, local, or oracle; or set OPENAI_API_KEY for the "
        "models of the OpenAI API"
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
