"""A module whose import takes longer than tests let a function run."""

import time

time.sleep(1.0)


def answer():
    return 42
