"""docs/endpoints.md: the example is valid and contains every key."""

import re

from gymcli.models.endpoint import EndpointLimits
from gymcli.models.settings import ModelSettings, load_settings, resolve_endpoint
from tests.docs.pages import blocks, page

TEXT = page("endpoints.md")


def shown(tmp_path):
    """Load the gym.toml of the page."""
    (tmp_path / "gym.toml").write_text(blocks("toml", TEXT)[0][1])
    return load_settings(tmp_path / "gym.toml")


def test_page_shows_a_whole_gym_toml(tmp_path):
    settings = shown(tmp_path)
    assert settings.roles == {"judge": "big"}
    assert settings.models["big"].model_fields_set == set(ModelSettings.model_fields)
    assert settings.models["big"].limits.model_fields_set == set(EndpointLimits.model_fields)
    assert len(settings.models["small"].base_url) == 2


def test_page_shows_the_defaults(tmp_path):
    """Settings without a default, or with an empty one, are left out."""
    big = shown(tmp_path).models["big"]
    block = blocks("toml", TEXT)[0][1]
    names = re.findall(r"^(\w+(?:_timeout|_deadline|_attempts|_after)) =", block, re.MULTILINE)
    assert len(names) == 7
    for name in (*names, "dialect", "stream", "emulate_tools"):
        assert getattr(big, name) == ModelSettings.model_fields[name].default, name


def test_page_shows_addresses_that_make_one_endpoint(tmp_path):
    endpoint = resolve_endpoint(
        "small",
        base_url=None,
        api_key_env=None,
        dialect=None,
        settings=shown(tmp_path),
        environ={},
    )
    assert endpoint.addresses == ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8001/v1")
