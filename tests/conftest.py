"""Fixtures that more than one part of the tests needs."""

import sys
from collections.abc import Iterator

import hypothesis
import pytest

from gymcli.mock import MockServer
from gymcli.mock.process import serving

# A busy machine may take its time over one example; what is slow is measured in bench/.
hypothesis.settings.register_profile("gymcli", deadline=None)
# For every further version of Python: the laws are the same, the language need not be.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=15)
hypothesis.settings.load_profile("gymcli")


@pytest.fixture(scope="session", autouse=True)
def closed_workers() -> Iterator[None]:
    """Close the workers that tests share, where any test took them."""
    yield
    if pooled := sys.modules.get("tests.pooled"):
        pooled.close_pool()


@pytest.fixture
def mock_server() -> Iterator[MockServer]:
    """Yield a mock server in a thread of its own; set its `behaviour` before asking it.

    It echoes at first. For tests that are not async themselves, such as those of commands.
    """
    with serving(MockServer()) as server:
        yield server
