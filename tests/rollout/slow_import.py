"""A module that takes longer to import than the time limit of the functions in the tests."""

import time

time.sleep(1.0)


def answer():
    return 42
