"""What a person asked for on an arena's form: the words of `compare`, as plain data that a run keeps."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from armillary.errors import InputError

#: Names of the machine that this runs on.
HERE = "here"


@dataclass(frozen=True)
class Asked:
    """A study that was asked for; empty means the arena's default."""

    arena: str
    techniques: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    scale: str = "small"
    #: The name of a preset, or the text of a cluster file.
    cluster: str = ""
    repeats: int | None = None
    seed: int = 0
    work: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    retry_failed: bool = False

    @classmethod
    def from_json(cls, text: str | Mapping[str, Any]) -> Asked:
        """What `json` wrote."""
        try:
            found = dict(json.loads(text) if isinstance(text, str) else text)
            for name in ("techniques", "cases", "work"):
                found[name] = tuple(found.get(name, ()))
            return cls(**found)
        except (ValueError, TypeError) as error:
            raise InputError(f"found no request for a study ({error})") from None

    @classmethod
    def from_plan(cls, plan: Mapping[str, Any]) -> Asked:
        """What has to be asked for so that a study of the store goes on."""
        recipe = plan["recipe"]
        settings = {
            name: {key: json.dumps(value) if not isinstance(value, str) else value for key, value in values.items() if value is not None}
            for name, values in plan["techniques"].items()
        }
        return cls(
            recipe["arena"], tuple(plan["techniques"]), tuple(plan["cases"]), settings, recipe["scale"], recipe.get("cluster") or "",
            int(plan["repeats"]), int(plan["seed"]), tuple(recipe.get("work", ())), dict(recipe.get("options", ())),
        )  # fmt: skip

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def json(self) -> str:
        """As text."""
        return json.dumps(self.plain())

    def words(self) -> dict[str, Any]:
        """The arguments of `planned` and, with some more, of `compare`."""
        return {
            "arena": self.arena, "techniques": list(self.techniques) or None, "cases": list(self.cases) or None, "settings": self.settings,
            "scale": self.scale, "cluster": self._cluster(), "repeats": self.repeats, "seed": self.seed, "work": list(self.work),
            "options": dict(self.options),
        }  # fmt: skip

    def command(self) -> str:
        """The same on the command line, for the report; files by their names alone."""
        parts = ["armillary", "compare", self.arena]
        for file in self.work:
            parts += ["--work", Path(file).name]
        for name, value in self.options.items():
            parts += [f"--{name.replace('_', '-')}", Path(value).name if "/" in value else value]
        parts += ["--techniques", ",".join(self.techniques)] if self.techniques else []
        parts += ["--cases", ",".join(self.cases)] if self.cases else []
        for technique, values in self.settings.items():
            parts += [word for key, value in values.items() for word in ("--set", f"{technique}.{key}={value}")]
        parts += ["--scale", self.scale] if not self.work else []
        parts += ["--repeats", str(self.repeats)] if self.repeats is not None else []
        parts += ["--cluster", self.cluster] if self.cluster and "\n" not in self.cluster else []
        return shlex.join([*parts, "--seed", str(self.seed)])

    def _cluster(self) -> Any:
        from armillary import cluster

        if not self.cluster:
            return None
        if self.cluster == HERE:
            return cluster.here()
        return cluster.loads(self.cluster, files=False) if "\n" in self.cluster else self.cluster
