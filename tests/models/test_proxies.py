"""Which proxy the environment names."""

import pytest

from gymcli.models.settings import proxy_for

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
