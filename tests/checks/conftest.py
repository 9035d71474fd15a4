"""Fixtures of the tests of checks."""

from collections.abc import Iterator

import pytest

from tests.pooled import close_pool


@pytest.fixture(scope="session", autouse=True)
def closed_workers() -> Iterator[None]:
    """Close the pool that checks use, once all tests have run."""
    yield
    close_pool()
