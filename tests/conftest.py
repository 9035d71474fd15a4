"""Fixtures that several parts of the tests share."""

import sys
from collections.abc import Iterator

import hypothesis
import pytest

from gymcli.mock import MockServer
from gymcli.mock.process import serving

# A single example may be slow on a busy machine; bench/ measures speed.
hypothesis.settings.register_profile("gymcli", deadline=None)
# Other versions of Python run fewer examples: they test the language, not the laws.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=15)
hypothesis.settings.load_profile("gymcli")


@pytest.fixture(scope="session", autouse=True)
def closed_workers() -> Iterator[None]:
    """Close the shared workers if a test has started them."""
    yield
    # Looked up rather than imported, since most tests need no workers.
    if pooled := sys.modules.get("tests.pooled"):
        pooled.close_pool()


@pytest.fixture
def mock_server() -> Iterator[MockServer]:
    """Yield a mock server in its own thread; it echoes until a test sets its `behaviour`.

    For tests that are not async, such as those of commands.
    """
    with serving(MockServer()) as server:
        yield server
