"""Rows with the columns of SimpleQA: a question and its answer, also numbers and other scripts."""


def rows(rng, num):
    return {"": [row(rng, number) for number in range(num)]}


def row(rng, number):
    year = rng.randint(1801, 1999)
    answer = (str(year), f"Saint-Étienne, {year}", f"{year}年", f'"{year}, part 2"')[number % 4]
    return {
        "metadata": str({"topic": "History", "answer_type": "Date", "urls": ["https://a.example"]}),
        "problem": f"In what year, {{exactly}}, was bridge no. {number} opened?\n",
        "answer": answer,
    }
