"""The environment circle_count: how the number is read, and the image encoder."""

import base64
import io
import zlib
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.envs import load_generator
from gymcli.envs.circle_count import Circle, CircleCount
from tests.envs.episodes import answered, row_of_file, scored

generator = load_generator("circle_count")


def circle(color, x=50, y=60, radius=10):
    return {"x": x, "y": y, "radius": radius, "color": color}


def counted(*texts, circles=("red", "red", "blue"), target="red"):
    fields = {"circles": [circle(color) for color in circles], "target_color": target}
    return scored(answered("circle_count", fields, *texts))


def image_in(row):
    """Return the PNG file in a row's message, and check its place in the message."""
    [message] = row["messages"]
    image, text = message["content"]
    assert (image["type"], text["type"]) == ("image_url", "text")
    head, _, data = image["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    return base64.b64decode(data)


def pixels(file):
    """Decode an image with only zlib; return its rows of palette indices, and the palette."""
    assert file.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, place = {}, 8
    while place < len(file):
        length = int.from_bytes(file[place : place + 4], "big")
        name, data = file[place + 4 : place + 8], file[place + 8 : place + 8 + length]
        assert zlib.crc32(name + data) == int.from_bytes(file[place + 8 + length :][:4], "big")
        chunks[name], place = data, place + 12 + length
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height = (int.from_bytes(chunks[b"IHDR"][n : n + 4], "big") for n in (0, 4))
    assert chunks[b"IHDR"][8:] == bytes([4, 3, 0, 0, 0]), "4 bits, palette, not interlaced"
    data, stride = zlib.decompress(chunks[b"IDAT"]), width // 2 + 1
    lines = [data[start : start + stride] for start in range(0, len(data), stride)]
    assert {line[0] for line in lines} == {0}
    assert len(lines) == height
    colors = chunks[b"PLTE"]
    palette = [tuple(colors[start : start + 3]) for start in range(0, len(colors), 3)]
    return [line[1:].hex() for line in lines], palette


def rows(num=60, seed=0):
    return list(CircleCount.generate(Random(seed), num))


@pytest.mark.parametrize(
    ("texts", "reward", "answer", "reason"),
    [
        pytest.param([r"I see \boxed{2}."], 1.0, "2", "correct", id="boxed"),
        pytest.param([r"\boxed{3}"], 0.0, "3", "wrong_number", id="wrong"),
        pytest.param([r"\boxed{2} or \boxed{3}"], 1.0, "2", "correct", id="first box counts"),
        pytest.param([r"\boxed{3}, no: \boxed{2}"], 0.0, "3", "wrong_number", id="not the last"),
        pytest.param([r"\boxed{two}, \boxed{2}"], 1.0, "2", "correct", id="words are no number"),
        pytest.param([r"\boxed{ 2 }"], 0.0, None, "no_answer", id="spaces"),
        pytest.param([r"\boxed{-2}"], 0.0, None, "no_answer", id="sign"),
        pytest.param([r"\boxed{2.0}"], 0.0, None, "no_answer", id="decimals"),
        pytest.param([r"\boxed{002}"], 1.0, "2", "correct", id="leading zeros"),
        pytest.param(["\\boxed{\u0662}"], 1.0, "2", "correct", id="digits of another script"),
        pytest.param([r"\boxed{2"], 0.0, None, "no_answer", id="not closed"),
        pytest.param([r"\boxed{}"], 0.0, None, "no_answer", id="empty box"),
        pytest.param(["2"], 0.0, None, "no_answer", id="no box"),
        pytest.param([""], 0.0, None, "no_answer", id="nothing"),
        pytest.param([r"\boxed{3}", r"\boxed{2}"], 0.0, "3", "wrong_number", id="all turns"),
        pytest.param([r"\boxed{" + "0" * 999 + "2}"], 1.0, "2", "correct", id="1,000 digits"),
        pytest.param([r"\boxed{" + "0" * 1000 + "2}"], 0.0, None, "wrong_number", id="more"),
        pytest.param([r"\boxed{" + "9" * 10_000 + "}"], 0.0, None, "wrong_number", id="too many"),
    ],
)
def test_verify_compares_the_first_number_in_a_box(texts, reward, answer, reason):
    rollout = counted(*texts)

    assert (rollout.reward, rollout.answer) == (reward, answer)
    assert rollout.details == {"reason": reason, "expected": "2"}


def test_verify_counts_none_where_no_circle_has_the_color():
    assert counted(r"\boxed{0}", target="green").reward == 1.0
    assert counted(r"\boxed{0}", circles=()).reward == 1.0


def test_verify_scores_a_row_in_the_shape_of_the_reference(tmp_path):
    parts = [
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
        {"type": "input_text", "text": "How many?"},
    ]
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": parts}]},
        "circles": [circle("red"), circle("blue"), circle("red")],
        "target_color": "red",
    }
    found = row_of_file(tmp_path, "circle_count", row)

    assert found.messages[0].content[0]["image_url"]["detail"] == "auto"
    assert scored(answered("circle_count", found.fields, r"\boxed{2}")).reward == 1.0


def test_choices_are_all_numbers_that_there_could_be():
    task = CircleCount.parse_task({"circles": [circle("red")] * 2, "target_color": "red"})

    assert CircleCount.choices(task) == [r"\boxed{0}", r"\boxed{1}", r"\boxed{2}"]


def test_generate_shows_what_the_row_says():
    """Circles do not overlap, lie within the picture, and have the row's colours."""
    for row in rows(6, seed=3):
        lines, palette = pixels(image_in(row))
        assert len(lines) == len(lines[0]) == generator.SIZE
        expected = [[(255, 255, 255)] * generator.SIZE for _ in range(generator.SIZE)]
        for one in map(Circle.model_validate, row["circles"]):
            for y in range(one.y - one.radius, one.y + one.radius + 1):
                for x in range(one.x - one.radius, one.x + one.radius + 1):
                    if (x - one.x) ** 2 + (y - one.y) ** 2 <= one.radius**2:
                        assert min(x, y) > 0
                        assert expected[y][x] == (255, 255, 255), "two circles overlap"
                        expected[y][x] = generator.COLORS[one.color]
        assert [[palette[int(digit, 16)] for digit in line] for line in lines] == expected


def test_generate_makes_every_number_possible_and_hard_pictures_fuller():
    made = rows(90, seed=1)

    shares = [
        sum(one["color"] == row["target_color"] for one in row["circles"]) / len(row["circles"])
        for row in made
    ]
    assert (min(shares), max(shares)) == (0.0, 1.0)
    by_level = {
        level: [len(row["circles"]) for row in made if row["difficulty"] == level]
        for level in ("easy", "medium", "hard")
    }
    assert max(by_level["easy"]) < min(by_level["medium"])
    assert max(by_level["medium"]) < min(by_level["hard"])
    assert len({msgspec.json.encode(row["messages"]) for row in made}) == 90


def test_drawn_gives_what_another_decoder_reads():
    image = pytest.importorskip("PIL.Image", reason="Pillow comes with other packages")
    file = generator.drawn([Circle(x=100, y=40, radius=30, color="blue")])

    with image.open(io.BytesIO(file)) as opened:
        found = opened.convert("RGB")
    assert found.size == (generator.SIZE, generator.SIZE)
    assert found.getpixel((100, 10)) == found.getpixel((130, 40)) == generator.COLORS["blue"]
    assert found.getpixel((100, 9)) == found.getpixel((131, 40)) == (255, 255, 255)


def test_drawn_compresses():
    assert len(generator.drawn([])) < 1500


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=20),
            st.builds(
                lambda byte, num: bytes([byte]) * num, st.integers(0, 255), st.integers(1, 600)
            ),
        ),
        max_size=8,
    ),
    st.integers(1, 40),
    st.integers(1, 4),
)
def test_deflated_gives_what_zlib_reads_back(pieces, row_length, num_copies):
    data = b"".join(pieces) * num_copies

    assert zlib.decompress(generator.deflated(data, row_length)) == data


def test_deflated_writes_matches_of_every_length(subtests):
    cases = [*range(1, 20), 34, 35, 66, 67, 130, 131, 257, 258, 259, 260, 517]
    for length in cases:
        with subtests.test(length=length):
            data = b"\xff" + b"\xff" * length + b"\0"

            assert zlib.decompress(generator.deflated(data, 1)) == data


def test_deflated_writes_matches_of_every_distance(subtests):
    cases = [*range(1, 14), 24, 25, 200, 201, 4096, 24_577, 32_768]
    for back in cases:
        with subtests.test(back=back):
            piece = Random(back).randbytes(back)

            packed = generator.deflated(piece * 2, back)
            assert zlib.decompress(packed) == piece * 2
            if back > 200:
                assert len(packed) < 1.5 * back, "the second copy is not encoded as matches"


@given(st.data())
def test_png_gives_what_was_drawn(data):
    width = 2 * data.draw(st.integers(1, 12))
    line = st.text("0123456789abcdef", min_size=width, max_size=width)
    lines = data.draw(st.lists(line, min_size=1, max_size=12))
    palette = [(n, 255 - n, n * 7 % 256) for n in range(16)]

    assert pixels(generator.png(lines, palette)) == (lines, palette)


@pytest.mark.parametrize(
    ("width", "words"),
    [(3, "rows have 3 pixels, which is odd"), (65_536, "a row has 32769 bytes, more than 32768")],
)
def test_png_refuses_rows_that_no_decoder_would_read(width, words):
    with pytest.raises(ValueError, match=words):
        generator.png(["0" * width], [(0, 0, 0)])
