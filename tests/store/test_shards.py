"""Shards: every task is in exactly one of them, whatever the other tasks are."""

from pathlib import Path

import pytest

from gymcli.errors import RunMismatchError
from gymcli.store.shards import Shard, check_same_shard


def test_parse_counts_from_one():
    assert Shard.parse("1/4") == Shard(1, 4)
    assert Shard.parse("04/04") == Shard(4, 4)
    assert str(Shard.parse("4/4")) == "4/4"


WRONG = (
    "0/4",
    "5/4",
    "1/0",
    "1",
    "/4",
    "1/",
    "a/b",
    "-1/4",
    "1/4/4",
    "1/100001",
    "\N{SUPERSCRIPT TWO}/4",
)


@pytest.mark.parametrize("text", WRONG)
def test_parse_refuses_what_is_no_part(text):
    with pytest.raises(ValueError, match="1/"):
        Shard.parse(text)


def test_takes_gives_every_task_to_one_shard():
    hashes = [f"{n * 0x9E3779B97F4A7C15 % 2**64:016x}" for n in range(1000)]
    shards = [Shard(number, 7) for number in range(1, 8)]
    takers = [[shard for shard in shards if shard.takes(one)] for one in hashes]
    assert all(len(found) == 1 for found in takers)
    assert {found[0] for found in takers} == set(shards)
    assert all(Shard(1, 1).takes(one) for one in hashes)


@pytest.mark.parametrize(
    ("there", "here", "way_out"),
    [
        ("1/4", "2/4", "holds shard 1/4; use --shard 1/4"),
        ("1/4", "", "holds shard 1/4; use --shard 1/4"),
        ("", "1/4", "holds a run of all shards; leave out --shard"),
    ],
)
def test_check_same_shard_names_the_way_out(there, here, way_out):
    with pytest.raises(RunMismatchError, match=f"^run: {way_out} to resume it, or use another"):
        check_same_shard(Path("run"), there, here)
    check_same_shard(Path("run"), there, there)
