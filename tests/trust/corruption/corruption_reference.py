"""A core as dictionaries and lists, written apart from the one that is tested: one access and one branch at a time."""

from __future__ import annotations


class Level:
    """Sets of lines, each a list with the last used one at its end."""

    def __init__(self, sets: int, ways: int) -> None:
        self.sets, self.ways = sets, ways
        self.held: dict[int, list[int]] = {}

    def known(self, line: int) -> bool:
        held = self.held.setdefault(line % self.sets, [])
        found = line in held
        if found:
            held.remove(line)
        held.append(line)
        if len(held) > self.ways:
            held.pop(0)
        return found


class Core:
    """Counts of loads and branches."""

    def __init__(self, l1: int, l2: int, llc: int) -> None:
        self.levels = [Level(l1 // 512, 8), Level(l2 // 512, 8), Level(llc // 1024, 16)]
        self.pages = Level(16, 4)
        self.misses = [0, 0, 0]
        self.page_misses = self.wrong = 0
        self.history = ""
        self.predictor: dict[int, int] = {}

    def load(self, address: int) -> None:
        self.page_misses += not self.pages.known(address // 4096)
        line = address // 64
        for number, level in enumerate(self.levels):
            if level.known(line):
                break
            self.misses[number] += 1
        else:
            number = 3
        if number:
            for level in self.levels:
                if level.known(line + 1):
                    break

    def branch(self, place: int, taken: bool) -> None:
        at = (place ^ int(self.history or "0", 2)) % 4096
        held = self.predictor.get(at, 1)
        self.wrong += (held >= 2) != taken
        self.predictor[at] = min(3, held + 1) if taken else max(0, held - 1)
        self.history = (self.history + str(int(taken)))[-12:]
