"""Rows of rajpurkar/squad_v2, made by hand: several answers, the same one twice, or none."""


def rows(rng, num):
    return {"": [_row(rng, place) for place in range(num)]}


def _row(rng, place):
    year, town = rng.randint(1600, 1990), f"Town {place}"
    context = f'The mill of {town} \u2013 a "listed" {{one}} \u2013 closed in May {year}.'
    shapes = [
        ("When did it close?", [f"in May {year}", f"May {year}", f"May {year}"]),
        ("Where was the mill?", [f"the mill of {town}", town]),
        ("Who closed it?", []),
        ("What is an article?", ["the", town]),
    ]
    question, answers = shapes[place % len(shapes)]
    starts = [max(context.find(answer), 0) for answer in answers]
    return {
        "id": f"{place:024x}",
        "title": "Mills_(building)",
        "context": context,
        "question": question,
        "answers": {"text": answers, "answer_start": starts},
    }
