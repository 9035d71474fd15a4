"""Lines of a file that grows are given once, and none of another file in its place."""

from gymcli.index.following import Followed


def test_new_lines_gives_none_of_a_file_that_came_in_its_place(tmp_path):
    """Also where it came after it was last asked whether the file was replaced."""
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.write_bytes(b'{"a": 1}\n')
    followed = Followed(path)
    assert [line.data for line in followed.new_lines()] == [b'{"a": 1}']
    other.write_bytes(b'{"b": 1, "c": 1}\n{"b": 2}\n')
    other.replace(path)
    assert list(followed.new_lines()) == []
    assert followed.is_replaced()


def test_new_lines_gives_those_that_are_new_with_their_places(tmp_path):
    path = tmp_path / "a.jsonl"
    followed = Followed(path)
    assert (list(followed.new_lines()), followed.is_replaced()) == ([], False)
    path.write_bytes(b"\xef\xbb\xbf1\r\n\n 2")
    assert list(followed.new_lines()) == [(1, 3, b"1"), (3, 8, b"2")]
    with path.open("ab") as file:
        file.write(b"\n3\n{")
    assert list(followed.new_lines()) == [(4, 10, b"3")]
    assert (followed.has_grown(), followed.is_replaced()) == (True, False)
    path.unlink()
    assert (followed.has_grown(), followed.is_replaced()) == (False, True)
