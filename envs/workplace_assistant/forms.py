"""The one form in which the tables hold a day, a time or a length, and the sentence that says so.

Whatever else means the same would be stored as it is and never be equal to the gold.
"""

from datetime import date, datetime

__all__ = ["day_fault", "duration_fault", "time_fault"]


def time_fault(text: str) -> str:
    """Say what is wrong with a time, if anything."""
    try:
        is_time = f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S}" == text
    except ValueError:
        is_time = False
    return "" if is_time else f"{text!r} is no time; write it as YYYY-MM-DD HH:MM:SS."


def day_fault(text: str) -> str:
    """Say what is wrong with a day, if anything."""
    try:
        is_day = date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_day = False
    return "" if is_day else f"{text!r} is no day; write it as YYYY-MM-DD."


def duration_fault(text: str) -> str:
    """Say what is wrong with a length, if anything."""
    try:
        is_length = int(text) > 0 and str(int(text)) == text
    except ValueError:
        is_length = False
    return "" if is_length else f"{text!r} is no length; give whole minutes in digits, such as 45."
