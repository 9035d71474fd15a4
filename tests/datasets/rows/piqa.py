"""Rows of the two files of piqa: questions, some in another script, and a label a line."""

TOOLS = ["cup", "Löffel", "鍋", "rope"]


def rows(rng, num):
    made = [row(rng, number) for number in range(num)]
    labels = [{"label": one.pop("label")} for one in made]
    return {"dev.jsonl": made, "dev-labels.lst": labels}


def row(rng, number):
    tool, count = rng.choice(TOOLS), rng.randint(2, 9)
    label = rng.randrange(2)
    ways = [f"Use {count} of {tool}, then wait.", f"Use {count} of {tool}; never wait."]
    goal = f"How do I dry things no. {number}?" if number % 2 else f"dry things no. {number}"
    return {"goal": goal, "sol1": ways[label], "sol2": ways[1 - label], "label": label}
