"""YAML from strangers: plain values only, bounded in size, depth and aliases."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.errors import InputError
from armillary.files import read_yaml

pytest.importorskip("yaml")


def test_documents_are_plain_data(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: [1, 2.5, true]\nb: {c: text}\n---\n- x\n---\n")
    assert read_yaml(path) == [{"a": [1, 2.5, True], "b": {"c": "text"}}, ["x"], None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("!!python/object/apply:os.system ['true']", "tag"), ("!!binary aGk=", "tag"), ("a: [1, 2", "not YAML"), ("a: &x [*x]", "alias"),
        ("[" * 200 + "]" * 200, "deep"), ("a: &a [1,1,1,1]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [*c,*c,*c,*c]", "values"),
    ],
)  # fmt: skip
def test_what_is_not_plain_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as error:
        read_yaml(path, most=100)
    assert "\n" not in str(error.value)


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\n" * 100)
    with pytest.raises(InputError, match="at most"):
        read_yaml(path, limit=100)
