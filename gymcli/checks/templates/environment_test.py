"""Tests of new_environment."""

from pathlib import Path

import gymcli

FILE = Path(__file__).with_name("new_environment.py")


def test_new_environment_holds_every_check() -> None:
    """The oracle gets the top reward, guessers do not, and scores repeat; see `gym check`."""
    assert gymcli.check(f"{FILE}:NewEnvironment").failures == []
