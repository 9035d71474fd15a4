"""Stacks of py-spy: only work of clients counts."""

from bench.profiling import profile_of

ROOT = 'process 1:"python -m bench.overhead";'
GYM = ROOT + 'process 2:"python -m bench.overhead --job {"contestant":"gym"}";'
BARE = ROOT + 'process 3:"python -m bench.overhead --job {"contestant":"bare"}";'
MOCK = ROOT + 'process 4:"python -c from gymcli.cli import main; main() mock --seed 1";'
COLLECT = ROOT + 'process 5:"python -c from gymcli.cli import main; main() collect t.jsonl";'


def test_profile_counts_clients_alone():
    profile = profile_of(
        [
            f"{GYM}main (overhead.py:3);play (gymcli/rollout.py:12) 4",
            f"{COLLECT}play (gymcli/rollout.py:20);dumps (/v/site-packages/orjson/a.py:1) 3",
            f"{COLLECT}_find_and_load (<frozen importlib._bootstrap>:1);a (a.py:1) 100",
            f"{BARE}main (overhead.py:3) 50",
            f"{MOCK}main (gymcli/cli.py:3) 60",
            f"{ROOT}main (overhead.py:3) 70",
        ]
    )
    assert profile.num_samples == 7
    assert profile.own == {"play (gymcli/rollout.py)": 4, "dumps (orjson/a.py)": 3}
    assert profile.within["play (gymcli/rollout.py)"] == 7
