"""Rows with the columns of bbh, for a configuration of each kind and the few-shot prompts."""

KINDS = {
    "date_understanding": lambda rng, number: choice(rng, number, 6),
    "ruin_names": lambda rng, number: choice(rng, number, 4),
    "boolean_expressions": lambda rng, number: words(
        rng, f"{'not ' * number}( True ) is", ["True", "False"]
    ),
    "formal_fallacies": lambda rng, number: words(
        rng, f"Argument {number}\nOptions:\n- valid \n- invalid", ["valid ", "invalid"]
    ),
    "multistep_arithmetic_two": lambda rng, number: text(
        f"((-{number} + 2 * 9)) =", str(18 - number)
    ),
    "word_sorting": lambda rng, number: text(f"Sort: List: c{number} b a", f"a b c{number}"),
    "dyck_languages": lambda rng, number: brackets(f"{number:06b}"),
}


def rows(rng, num):
    tables = {name: [] for name in KINDS}
    for number in range(num):
        name = list(KINDS)[number % len(KINDS)]
        tables[name].append(KINDS[name](rng, number))
    # As in the source, a name with commas was split, and the target is none of its parts.
    tables["ruin_names"].insert(0, choice(rng, 99, 4) | {"target": "earth, wind, & fire"})
    examples = [
        {
            "dataset_name": name,
            "answer_only_prompt": f"Do {name}.\n\nQ: what?\nA: {{this}}",
            "chain_of_thought_prompt": f"Do {name}, step by step.",
        }
        for name in KINDS
    ]
    return {"few_shot_prompts": examples, **tables}


def choice(rng, number, num_options):
    texts = [f"{number}/{place}/2024" for place in range(1, num_options + 1)]
    labels = "ABCDEF"[:num_options]
    return {
        "question": f"Today is day {number}. What is the date?",
        "choices": {"label": [f"({letter})" for letter in labels], "text": texts},
        "target": rng.choice(labels),
    }


def words(rng, question, targets):
    return text(question, rng.choice(targets))


def brackets(bits):
    opened = ["[{"[int(bit)] for bit in bits]
    closing = ["]}"[int(bit)] for bit in reversed(bits)]
    return text(f"Complete: {' '.join(opened)}", " ".join(closing))


def text(question, target):
    return {"question": question, "target": target}
