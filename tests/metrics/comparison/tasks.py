"""Tasks in two runs, made up for the tests of comparisons."""

import random

from gymcli.metrics import EnvironmentFacts
from gymcli.metrics.comparison import PairedTask, Rule, RunSide, compare, parse_measure

BINARY = EnvironmentFacts(max_reward=1.0)


def paired(pairs, *, env="e", slices=()):
    """Give tasks from the rewards of their attempts in A and B; None: not in that run."""
    return [
        PairedTask(
            env,
            f"t{number:04}",
            list(a or ()),
            list(b or ()),
            is_in_a=a is not None,
            is_in_b=b is not None,
            slices=slices[number] if slices else (),
        )
        for number, (a, b) in enumerate(pairs)
    ]


def drawn(num_tasks, num_attempts, gain=0.0, *, seed=1):
    """Give the rewards of tasks of all difficulties, which B passes more often by `gain`."""
    draw = random.Random(f"{num_tasks}/{num_attempts}/{gain}/{seed}")
    found = []
    for _ in range(num_tasks):
        rate = draw.betavariate(2.0, 2.0)
        found.append(
            tuple(
                [float(draw.random() < own) for _ in range(num_attempts)]
                for own in (rate, rate + gain)
            )
        )
    return found


def compared(
    tasks, *, metric="mean_reward", facts=None, fields=(), a=None, b=None, with_tasks=False, **rule
):
    """Compare tasks, of the environment `e` unless `facts` names others."""
    return compare(
        tasks,
        a=a or RunSide(run="a"),
        b=b or RunSide(run="b"),
        facts={"e": BINARY} if facts is None else facts,
        measure=parse_measure(metric),
        rule=Rule(**rule),
        fields=fields,
        with_tasks=with_tasks,
    )
