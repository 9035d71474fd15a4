"""Where `Workers` was; the import lines of other rooms still name it."""

from __future__ import annotations

from gymcli.rollout.scoring import Workers
from gymcli.rollout.verifier_worker import as_error

__all__ = ["Workers", "as_error"]
