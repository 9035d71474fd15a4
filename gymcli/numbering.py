"""Numbers for keys of which there are very many: a few bytes each, where a dict takes a hundred."""

from __future__ import annotations

from array import array
from itertools import islice

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
        self._places = array("I")
        """At the place that its hash asks for, or a later one: the number of a key, plus 1; no
        places as long as no key was looked up."""

    def __len__(self) -> int:
        """Give how many keys there are."""
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> bytes:
        """Give the key that has this number."""
        return bytes(self._keys[self._starts[number] : self._starts[number + 1]])

    def find(self, key: bytes) -> int | None:
        """Give the number of a key, or None where it has none."""
        places, starts = self._places or self._placed(), self._starts
        last = len(places) - 1
        place = hash(key) & last
        while following := places[place]:
            if self._keys[starts[following - 1] : starts[following]] == key:
                return following - 1
            place = (place + 1) & last
        return None

    def number_of(self, key: bytes) -> int:
        """Give the number of a key, which is the next one where the key is new."""
        places, starts = self._places or self._placed(), self._starts
        last = len(places) - 1
        place = hash(key) & last
        while following := places[place]:
            if self._keys[starts[following - 1] : starts[following]] == key:
                return following - 1
            place = (place + 1) & last
        number = len(starts) - 1
        places[place] = number + 1
        self._keys += key
        starts.append(len(self._keys))
        if 2 * (number + 1) > len(places):
            self.settle()
        return number

    def settle(self) -> None:
        """Give up the third of the memory that looking keys up takes, until one is looked up."""
        self._places = array("I")

    def _placed(self) -> array[int]:
        """Give every key its place anew."""
        size = _FIRST_SIZE
        while size < 2 * len(self):
            size *= 2
        places = self._places = array("I", [0]) * size
        last = len(places) - 1
        start = 0
        for number, end in enumerate(islice(self._starts, 1, None), 1):
            place = hash(bytes(self._keys[start:end])) & last
            while places[place]:
                place = (place + 1) & last
            places[place] = number
            start = end
        return places
