"""Rows with the columns of Humanity's Last Exam: every third has an image and is left out."""

IMAGE = "data:image/png;base64,iVBORw0KGgo="


def rows(rng, num):
    return {"": [row(rng, number) for number in range(num * 3 // 2 - 1)]}


def row(rng, number):
    is_choice = bool(number % 2)
    factor = rng.randint(2, 99)
    question = f"Let $f_{{{number}}}(x) = {factor}x$. What is $f_{{{number}}}'(x)$?"
    choices = "\n\nAnswer Choices:\nA. none\nB. $x$\nC. {0}\nD. \\frac{1}{2}" if is_choice else ""
    return {
        "id": f"66e8{number:020x}",
        "question": question + choices,
        "image": IMAGE if number % 3 == 2 else "",
        "image_preview": {"bytes": b"\x89PNG", "path": None} if number % 3 == 2 else None,
        "answer": "ABCD"[number % 4] if is_choice else f"${factor + 100}$",
        "answer_type": "multipleChoice" if is_choice else "exactMatch",
        "author_name": "made by hand",
        "rationale": f"It is {factor}.",
        "rationale_image": None,
        "raw_subject": "Mathematics",
        "category": "Math",
        "canary": "made by hand",
    }
