"""Time limits around somebody else's code, whether it waits or computes."""

from gymcli.deadlines.alarm import NO_ALARM, Alarm, OverrunError
from gymcli.deadlines.calls import Limit, within

__all__ = ["NO_ALARM", "Alarm", "Limit", "OverrunError", "within"]
