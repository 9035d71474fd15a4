"""Numbers for keys of which there are very many: a few bytes each, where a dict takes a hundred."""

from __future__ import annotations

from array import array

__all__ = ["Numbering"]

_FIRST_SIZE = 64


class Numbering:
    """Gives each key its number: 0, 1, 2 and on in the order that keys come first.

    A hash table with linear probing (Knuth, "The Art of Computer Programming" 3, section 6.4),
    never more than half full. A key takes its own bytes and 12 to 20 more; all keys together may
    have 4 GB.
    """

    def __init__(self) -> None:
        self._keys = bytearray()
        self._starts = array("I", [0])
        """Of each key within `_keys`, and the end of the last one."""
        self._places = _empty(_FIRST_SIZE)
        """At the place that its hash asks for, or a later one: the number of a key, plus 1."""

    def __len__(self) -> int:
        """Give how many keys there are."""
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> bytes:
        """Give the key that has this number."""
        return bytes(self._keys[self._starts[number] : self._starts[number + 1]])

    def number_of(self, key: bytes) -> int:
        """Give the number of a key, which is the next one where the key is new."""
        places, starts = self._places, self._starts
        last = len(places) - 1
        place = hash(key) & last
        while following := places[place]:
            if self._keys[starts[following - 1] : starts[following]] == key:
                return following - 1
            place = (place + 1) & last
        number = len(self)
        places[place] = number + 1
        self._keys += key
        starts.append(len(self._keys))
        if 2 * len(self) > len(places):
            self._grow()
        return number

    def _grow(self) -> None:
        places = self._places = _empty(2 * len(self._places))
        last = len(places) - 1
        for number in range(len(self)):
            place = hash(self[number]) & last
            while places[place]:
                place = (place + 1) & last
            places[place] = number + 1


def _empty(size: int) -> array[int]:
    return array("I", bytes(size * array("I").itemsize))
