"""How a user's files become cases: every file counts by its content, options are checked in one place, and files are read once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from armillary.arena import Arena, Case, Metric, parameter
from armillary.errors import InputError


@dataclass(frozen=True)
class Reading:
    """Options of every kind."""

    scale: float = parameter(1.0, "a factor", range=(0.5, 4))
    extra: tuple[str, ...] = parameter((), "further files", file=True)
    preset: str = parameter("small", "a preset or a file", file=True)
    long_name: int = parameter(3, "an option of two words", range=(1, 9))


@pytest.fixture
def arena() -> Arena:
    made = Arena("test/reading", question="?", metrics=[Metric("sum")], techniques={})
    made.reads = []  # type: ignore[attr-defined]

    @made.read(Reading)
    def read(path: Path, how: Reading) -> list[float]:
        made.reads.append(path.name)  # type: ignore[attr-defined]
        texts = [path.read_text(), *(Path(name).read_text() for name in how.extra)]
        return [how.scale * float(text) for text in texts]

    @made.own_cases
    def own_cases(loaded: list[float], name: str, how: Reading) -> list[Case]:
        return [Case(f"{name}@{i}", parameters={"i": i}) for i in range(len(loaded))]

    return made


def test_every_file_counts_by_its_content(arena: Arena, tmp_path: Path) -> None:
    work, other = tmp_path / "a.txt", tmp_path / "b.txt"
    work.write_text("1")
    other.write_text("2")
    options = {"extra": str(other)}
    first = arena.from_file(work, options)
    assert [case.workload for case in first] == [[1.0, 2.0]] * 2
    assert first[0].files == (work, other)
    other.write_text("3")
    second = arena.from_file(work, options)
    assert second[0].digest != first[0].digest
    assert second[0].workload == [1.0, 3.0]
    other.write_text("2")
    assert arena.from_file(work, options)[0].digest == first[0].digest


def test_a_file_is_read_once_for_each_content_and_option(arena: Arena, tmp_path: Path) -> None:
    work = tmp_path / "a.txt"
    work.write_text("1")
    for _ in range(3):
        assert arena.from_file(work)[0].workload == [1.0]
    assert arena.reads == ["a.txt"]  # type: ignore[attr-defined]
    assert arena.from_file(work, {"scale": "2"})[0].workload == [2.0]
    assert arena.reads == ["a.txt"] * 2  # type: ignore[attr-defined]


def test_what_was_planned_is_what_is_run(arena: Arena, tmp_path: Path) -> None:
    """A file that changes after planning is refused when it has to be read again."""
    work = tmp_path / "a.txt"
    work.write_text("1")
    (case,) = arena.from_file(work)
    for i in range(3):  # Others push it out of what is kept.
        (tmp_path / f"{i}.txt").write_text(str(10 + i))
        arena.from_file(tmp_path / f"{i}.txt")
    work.write_text("5")
    with pytest.raises(InputError, match="changed since the study was planned"):
        _ = case.loaded


def test_no_path_is_part_of_a_case(arena: Arena, tmp_path: Path) -> None:
    digests = set()
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.txt").write_text("1")
        (folder / "b.txt").write_text("2")
        digests.add(arena.from_file(folder / "a.txt", {"extra": str(folder / "b.txt")})[0].digest)
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scale": "9"}, "--scale: found 9.0; expected a value from 0.5 to 4"),
        ({"scale": "x"}, "--scale"),
        ({"sclae": "1"}, 'unknown option "--sclae" (did you mean "--scale"'),
        ({"long-name": "0"}, "--long-name: found 0"),
    ],
)
def test_wrong_options_are_one_line(arena: Arena, tmp_path: Path, options: dict[str, str], said: str) -> None:
    (tmp_path / "a.txt").write_text("1")
    with pytest.raises(InputError) as caught:
        arena.from_file(tmp_path / "a.txt", options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_regular_files_are_opened(arena: Arena, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1")
    os.mkfifo(tmp_path / "fifo")
    for path, options, said in (
        (tmp_path, {}, "found a folder"),
        (tmp_path / "fifo", {}, "found a FIFO"),
        (Path("/dev/zero"), {}, "found a device"),
        (tmp_path / "none", {}, "no such file"),
        (tmp_path / "a.txt", {"preset": str(tmp_path / "fifo")}, "found a FIFO"),
    ):
        with pytest.raises(InputError, match=said):
            arena.from_file(path, options)


def test_something_computed_once_is_computed_once_per_case(arena: Arena, tmp_path: Path) -> None:
    calls = []

    def square(case: Case, power: int = 2) -> float:
        calls.append(case.name)
        return case.workload[0] ** power

    (tmp_path / "a.txt").write_text("3")
    case = arena.from_file(tmp_path / "a.txt")[0]
    assert (case.once(square), case.once(square), case.once(square, 3)) == (9, 9, 27)
    assert len(calls) == 2
    assert case.at(1, 0).once(square) == 9
    assert len(calls) == 3, "another seed is another case"


def test_variants_of_a_class_are_techniques_of_their_own() -> None:
    from armillary import catalogue

    logs = catalogue.arena("compression/logs")
    assert logs.variant("cfseq+gzip-6") == {"compressor": "gzip-6"}
    assert logs.make("cfseq+gzip-6").compressor == "gzip-6"  # type: ignore[attr-defined]
    assert logs.make("cfseq+gzip-6", {"compressor": "xz-6"}).compressor == "xz-6"  # type: ignore[attr-defined]
    assert logs.technique("cfseq+gzip-6") is logs.technique("cfseq")
    assert [claim.over for claim in logs.claims_of("cfseq+bzip2")] == ["bzip2"] * 3
