"""Generates configurations, seeds and indices of reasoning-gym puzzles at three difficulties."""

from collections.abc import Iterator, Mapping
from random import Random

from gymcli import JSONObject

Suite = Mapping[str, Mapping[str, JSONObject]]
"""The options of generators by category and name."""


def generate(
    rng: Random, num: int, *, suite: Suite | None = None, seed: int = 0
) -> Iterator[JSONObject]:
    """Yield puzzles of each generator in turn, from easy to hard.

    With a suite, yield the first puzzle of each of its generators, then the second of each, and so
    on, all with this seed of the library.
    """
    if suite is not None:
        yield from _suite(num, suite, seed)
        return
    for number in range(num):
        series, level = divmod(number, len(LEVELS))
        name = list(SERIES)[series % len(SERIES)]
        seed, index = rng.randrange(1_000_000), number % 500
        words = name.replace("_", " ")
        text = f'Solve puzzle {index} of the series "{words} {seed}". Think before you answer.'
        yield {
            "id": f"puzzle-{number}",
            "difficulty": LEVELS[level],
            "messages": [{"role": "system", "content": text}],
            "generator": name,
            "config": dict(SERIES[name][level]),
            "seed": seed,
            "index": index,
        }


def _suite(num: int, suite: Suite, seed: int) -> Iterator[JSONObject]:
    series = [(category, name) for category, names in suite.items() for name in names]
    for number in range(num):
        index, place = divmod(number, len(series))
        category, name = series[place]
        yield {
            "id": f"{name}-{index}",
            "category": category,
            "messages": [{"role": "system", "content": SYSTEM}],
            "generator": name,
            "config": suite[category][name],
            "seed": seed,
            "index": index,
        }


SYSTEM = (
    "Solve the problem that follows. Think step by step, clearly and in detail, and then write "
    "your final answer between <answer> and </answer>, without any reasoning. If the problem shows "
    "an example, your answer must have exactly its format."
)
"""The system message of a suite, with the meaning of the library's own `default`."""

LEVELS = ("easy", "medium", "hard")

SERIES: dict[str, tuple[JSONObject, JSONObject, JSONObject]] = {
    "chain_sum": (
        {"min_terms": 2, "max_terms": 3, "min_digits": 2, "max_digits": 2},
        {"min_terms": 4, "max_terms": 6, "min_digits": 3, "max_digits": 4},
        {"min_terms": 8, "max_terms": 10, "min_digits": 5, "max_digits": 7},
    ),
    "spell_backward": (
        {"min_word_len": 4, "max_word_len": 5},
        {"min_word_len": 6, "max_word_len": 8},
        {"min_word_len": 9, "max_word_len": 10},
    ),
    "number_sorting": (
        {"min_numbers": 3, "max_numbers": 4, "max_decimals": 0},
        {"min_numbers": 8, "max_numbers": 10},
        {"min_numbers": 18, "max_numbers": 24, "min_decimals": 2, "max_decimals": 3},
    ),
    "countdown": (
        {"min_numbers": 3, "max_numbers": 3, "max_value": 20, "min_target": 10, "max_target": 99},
        {"min_numbers": 4, "max_numbers": 4},
        {"min_numbers": 6, "max_numbers": 6},
    ),
    "caesar_cipher": (
        {"min_words": 3, "max_words": 4, "max_rotation": 3},
        {"min_words": 6, "max_words": 9},
        {"min_words": 12, "max_words": 18},
    ),
    "lcm": (
        {"min_value": 4, "max_value": 30},
        {"min_value": 30, "max_value": 200},
        {"min_numbers": 3, "max_numbers": 3, "min_value": 50, "max_value": 400},
    ),
    "knights_knaves": (
        {"n_people": 2},
        {"n_people": 3},
        {"n_people": 4, "depth_constraint": 3},
    ),
    "base_conversion": (
        {"min_value": 20, "max_value": 100},
        {"min_value": 200, "max_value": 1000},
        {"min_value": 5000, "max_value": 50000},
    ),
    "mini_sudoku": (
        {"min_empty": 4, "max_empty": 6},
        {"min_empty": 8, "max_empty": 9},
        {"min_empty": 11, "max_empty": 12},
    ),
    "leg_counting": (
        {"min_animals": 2, "max_animals": 3, "max_instances": 9},
        {"min_animals": 4, "max_animals": 6},
        {"min_animals": 9, "max_animals": 12, "min_instances": 10, "max_instances": 99},
    ),
    "dice": (
        {"num_dice": 2, "max_dice_size": 8},
        {"num_dice": 3, "max_dice_size": 10},
        {"num_dice": 5, "max_dice_size": 20},
    ),
    "n_queens": (
        {"n": 5, "min_remove": 2, "max_remove": 2},
        {"n": 6, "min_remove": 4, "max_remove": 4},
        {"n": 8, "min_remove": 7, "max_remove": 7},
    ),
    "simple_equations": (
        {"min_terms": 2, "max_terms": 2, "min_value": 2, "max_value": 20},
        {"min_terms": 3, "max_terms": 4},
        {"min_terms": 5, "max_terms": 7, "min_value": 50, "max_value": 999},
    ),
    "count_primes": (
        {"min_n": 10, "max_n": 200},
        {"min_n": 200, "max_n": 2000},
        {"min_n": 5000, "max_n": 50000},
    ),
    "spiral_matrix": (
        {"min_n": 3, "max_n": 3},
        {"min_n": 5, "max_n": 5},
        {"min_n": 8, "max_n": 9},
    ),
    "cryptarithm": (
        {"min_words": 2, "max_words": 2},
        {"min_words": 3, "max_words": 3},
        {"min_words": 4, "max_words": 4},
    ),
    "products": (
        {"min_digits": 1, "max_digits": 2},
        {"min_digits": 3, "max_digits": 3},
        {"min_digits": 5, "max_digits": 6},
    ),
    "tower_of_hanoi": (
        {"min_disks": 3, "max_disks": 3, "max_pegs": 3},
        {"min_disks": 4, "max_disks": 4, "max_pegs": 3},
        {"min_disks": 6, "max_disks": 6, "max_pegs": 3},
    ),
    "decimal_arithmetic": (
        {"min_terms": 2, "max_terms": 2},
        {"min_terms": 4, "max_terms": 5},
        {"min_terms": 7, "max_terms": 8},
    ),
    "fraction_simplification": (
        {"min_value": 2, "max_value": 20, "min_factor": 2, "max_factor": 10, "styles": ["plain"]},
        {"min_value": 20, "max_value": 200, "min_factor": 10, "max_factor": 30},
        {"min_value": 300, "max_value": 3000, "min_factor": 50, "max_factor": 200},
    ),
}
"""Easy, medium and hard configurations of generators that are deterministic across processes.

Generators with only a few possible answers, or whose question often contains the answer, are left
out.
"""
