"""A module whose import takes longer than the time limit of functions in tests."""

import time

time.sleep(1.0)


def answer():
    return 42
