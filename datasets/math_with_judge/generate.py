"""Generates problems with computed answers: fractions, equations, numbers, calculus."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from random import Random

from gymcli import JSONObject


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield problems with computed answers, all of them different."""
    seen: set[str] = set()
    for number in range(num):
        difficulty = list(PROBLEMS)[number % len(PROBLEMS)]
        question, gold = rng.choice(PROBLEMS[difficulty])(rng)
        while gold in seen:
            question, gold = rng.choice(PROBLEMS[difficulty])(rng)
        seen.add(gold)
        yield {
            "id": f"math-{number}",
            "difficulty": difficulty,
            "prompt": f"{question}\n\nPut your final answer in \\boxed{{}}.",
            "question": question,
            "expected_answer": gold,
        }


Problem = tuple[str, str]
"""A question and its answer in LaTeX."""


def _latex(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _polynomial(coefficients: list[int]) -> str:
    """Return a polynomial in LaTeX; coefficients from the highest power to the constant."""
    terms = []
    for power, factor in zip(range(len(coefficients) - 1, -1, -1), coefficients, strict=True):
        if factor == 0:
            continue
        variable = {0: "", 1: "x"}.get(power, f"x^{power}")
        size = str(abs(factor)) if abs(factor) != 1 or not variable else ""
        terms.append(("- " if factor < 0 else "+ ") + size + variable)
    return " ".join(terms).removeprefix("+ ").replace("- ", "-", 1 if coefficients[0] < 0 else 0)


def _proper(rng: Random) -> Fraction:
    bottom = rng.randint(3, 12)
    return Fraction(rng.randint(1, bottom - 1), bottom)


def _fraction_sum(rng: Random) -> Problem:
    first, second = _proper(rng), _proper(rng)
    question = f"Add {first} and {second}. Give the sum as a fraction in lowest terms."
    return question, _latex(first + second)


def _linear_equation(rng: Random) -> Problem:
    a, c = rng.sample(range(2, 10), 2)  # different, so that there is exactly one solution
    b, d = rng.randint(-20, 20), rng.randint(-20, 20)
    left, right = _polynomial([a, b]), _polynomial([c, d])
    return f"Solve ${left} = {right}$ for $x$.", _latex(Fraction(d - b, a - c))


def _common_divisor(rng: Random) -> Problem:
    # The factors are pairwise coprime, so `shared` is the greatest common divisor.
    shared = rng.randint(11, 99)
    a, b = (shared * factor for factor in rng.sample((4, 5, 7, 9, 11, 13), 2))
    return f"What is the greatest common divisor of {a} and {b}?", str(math.gcd(a, b))


def _rational_roots(rng: Random) -> Problem:
    low, high = sorted(rng.sample([n for n in range(-12, 13) if n], 2))
    equation = f"${_polynomial([1, -low - high, low * high])} = 0$"
    question = (
        f"Find all solutions of {equation}. Give them in ascending order, separated by a comma."
    )
    return question, f"{low}, {high}"


def _power_remainder(rng: Random) -> Problem:
    base, exponent, modulus = rng.randint(2, 19), rng.randint(20, 99), rng.randint(101, 999)
    question = f"What is {base} to the power of {exponent}, modulo {modulus}?"
    return question, str(pow(base, exponent, modulus))


def _derivative(rng: Random) -> Problem:
    coefficients = [rng.randint(1, 6), *(rng.randint(-9, 9) for _ in range(3))]
    a, b, c, _ = coefficients
    question = f"What is the derivative of the function $f(x) = {_polynomial(coefficients)}$?"
    return question, _polynomial([3 * a, 2 * b, c])


def _committees(rng: Random) -> Problem:
    women, men = rng.randint(4, 9), rng.randint(4, 9)
    question = f"From {women} women and {men} men, a committee of two women and two men is chosen."
    return f"{question} In how many ways?", str(math.comb(women, 2) * math.comb(men, 2))


def _surd_root(rng: Random) -> Problem:
    # The radicands are square-free, so the root is in its simplest form.
    half, scale, radicand = rng.randint(1, 9), rng.randint(2, 5), rng.choice((2, 3, 5, 6, 7, 11))
    sign = rng.choice((-1, 1))
    equation = _polynomial([1, 2 * sign * half, half**2 - scale**2 * radicand])
    question = f"What is the larger of the two solutions of ${equation} = 0$? Give it exactly."
    return question, f"{-sign * half} + {scale}\\sqrt{{{radicand}}}"


def _integral(rng: Random) -> Problem:
    a, b, c = rng.randint(1, 7), rng.randint(-6, 6), rng.randint(-9, 9)
    end = rng.randint(2, 5)
    value = Fraction(a * end**3, 3) + Fraction(b * end**2, 2) + c * end
    function = f"$f(x) = {_polynomial([a, b, c])}$"
    return f"Integrate {function} over the interval from 0 to {end}.", _latex(value)


def _series(rng: Random) -> Problem:
    # A proper fraction is below 1, so the series converges.
    first, ratio = rng.randint(2, 30), _proper(rng) * rng.choice((-1, 1))
    question = f"The first term of a geometric series is {first} and the ratio of each term to the"
    return f"{question} one before it is {ratio}. What is its sum?", _latex(first / (1 - ratio))


def _sieve(rng: Random) -> Problem:
    limit, (a, b, c) = rng.randint(400, 2000), rng.sample((3, 4, 5, 6, 7, 9, 11), 3)
    question = f"How many integers from 1 to {limit} are multiples of {a} or of {b}"
    found = sum((n % a == 0 or n % b == 0) and n % c != 0 for n in range(1, limit + 1))
    return f"{question}, but not of {c}?", str(found)


PROBLEMS: dict[str, tuple[Callable[[Random], Problem], ...]] = {
    "easy": (_fraction_sum, _linear_equation, _common_divisor),
    "medium": (_rational_roots, _power_remainder, _derivative, _committees),
    "hard": (_surd_root, _integral, _series, _sieve),
}
