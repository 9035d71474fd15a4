"""An environment whose judge is a module variable."""

from gymcli import Judge
from tests.checks.subjects import Sound

JUDGE_OF_MODULE = Judge("{answer}", labels={"good": "[[GOOD]]", "bad": "[[BAD]]"})


class Judged(Sound):
    """Say the answer, to a judge."""
