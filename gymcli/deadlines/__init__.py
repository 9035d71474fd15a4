"""Time limits around somebody else's code, whether it waits or computes."""

from gymcli.deadlines.alarm import NO_ALARM, Alarm, OverrunError
from gymcli.deadlines.calls import Limit, limit_of, within
from gymcli.deadlines.loops import close, leave_process, leave_threads
from gymcli.deadlines.reminders import Reminders
from gymcli.deadlines.threads import leaving_threads

__all__ = [
    "NO_ALARM",
    "Alarm",
    "Limit",
    "OverrunError",
    "Reminders",
    "close",
    "leave_process",
    "leave_threads",
    "leaving_threads",
    "limit_of",
    "within",
]
