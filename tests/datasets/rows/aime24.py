"""Rows of Maxwell-Jia/AIME_2024, made by hand: the answers are numbers."""


def rows(rng, num):
    return {"": [_row(rng, place) for place in range(num)]}


def _row(rng, place):
    return {
        "ID": f"2024-{'I' * (1 + place // 15)}-{1 + place % 15}",
        "Problem": rf"Find $m+n$ if $\frac{{m}}{{n}} = \sqrt{{{place}}}$ and \[n^2 < {place}.\]",
        "Solution": f"By symmetry,\n$m+n = \\boxed{{{place}}}$.",
        "Answer": rng.randint(0, 999),
    }
