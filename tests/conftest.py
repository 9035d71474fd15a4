"""Fixtures that several packages of tests use."""

import os
import sys
from collections.abc import Iterator

import hypothesis
import pytest

from gymcli.mock import MockServer
from gymcli.mock.process import serving

# A busy machine may be slow with one example; speed is measured in bench/.
hypothesis.settings.register_profile("gymcli", deadline=None)
# Fewer examples for other versions of Python: those runs check the language, not the laws.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=15)
hypothesis.settings.load_profile("gymcli")


@pytest.fixture(scope="session", autouse=True)
def no_width() -> None:
    """Make results as wide as they are, as in a pipe: pytest-xdist sets COLUMNS in its workers."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture(autouse=True)
def import_path() -> Iterator[None]:
    """Take the folders of environments that a test loaded out of the import path again."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(scope="session", autouse=True)
def closed_workers() -> Iterator[None]:
    """Close the shared workers after the tests, if any test used them."""
    yield
    # Not imported at the top: most tests score nothing.
    if pooled := sys.modules.get("tests.pooled"):
        pooled.close_pool()


@pytest.fixture
def mock_server() -> Iterator[MockServer]:
    """Yield a mock server in a thread; set its `behaviour` before asking it.

    It echoes by default. For tests that are not async, such as those of commands.
    """
    with serving(MockServer()) as server:
        yield server
