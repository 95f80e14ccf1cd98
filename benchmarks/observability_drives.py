#!/usr/bin/env python3
"""Beside what a practitioner uses: LightGBM and XGBoost on the same rows, the readers beside Polars, and how fast drives are scored.

    python benchmarks/observability_drives.py [--quality | --reading | --scoring | --training] [--drives 2500]

All that is compared runs in one process, one after the other, and each line ends in a ratio. XGBoost is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.observability.drives import DrivesWork, Fleet, GmpPredictor, Lesson, LightGbm, draw, read_alibaba
from armillary.observability.drives.blocks import cores
from armillary.observability.drives.judging.alarms import best_threshold
from armillary.observability.drives.judging.lesson import Rows
from armillary.observability.drives.trees.classical import weights
from armillary.streams import stream


@dataclass(frozen=True)
class XgBoost:
    """XGBoost as its users run it: histograms, all cores, weights for failures."""

    trees: int = 300
    every: int = 10

    def learn(self, lesson: Lesson) -> Rows:
        """Grows the trees."""
        import xgboost

        _, x, y = lesson.table(self.every)
        model = xgboost.XGBClassifier(
            n_estimators=self.trees, max_depth=6, learning_rate=0.05, subsample=0.8, colsample_bytree=0.5, tree_method="hist",
            n_jobs=cores(), random_state=lesson.seed % (1 << 31),
        )  # fmt: skip
        model.fit(x, y, sample_weight=weights(y))
        return Rows(lambda rows: model.predict(rows, output_margin=True).astype(np.float64))


def work(seed: int, drives: int) -> DrivesWork:
    """A fleet of the arena's small scale."""
    fleet = draw(stream(seed, "benchmark", "drives"), drives, 120, drives * 3 // 25, horizon=30, models=3)
    return DrivesWork(fleet, 30, most_epochs=6, most_ensemble=1)


def best_of(times: int, act: Callable[[], Any]) -> tuple[float, Any]:
    """(least seconds, the last result)."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        made = act()
        found.append(time.perf_counter() - begin)
    return min(found), made


def quality(drives: int, seeds: int = 4) -> None:
    """F0.5 at an affordable rate, area, seconds of training and drive-days scored per second, means over fleets by seed."""
    learners: dict[str, Any] = {
        "gmppredictor": GmpPredictor(),
        "lightgbm": LightGbm(),
        "lightgbm, 300 trees": LightGbm(trees=300, leaves=31),
    }
    if importlib.util.find_spec("xgboost"):
        learners["xgboost"] = XgBoost()
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in learners}
    for seed in range(seeds):
        one = work(seed, drives)
        _ = one.days, one.rows
        for name, technique in learners.items():
            lesson = one.lesson(seed)
            train, scorer = best_of(1, lambda: technique.learn(lesson))  # noqa: B023
            level, _, _ = best_threshold(lesson.fleet, lesson.validated(scorer), 30)
            score, scored = best_of(2, lambda: one.scored(scorer))  # noqa: B023
            counted = one.counts(scored, level)
            found[name].append((counted.f05_at_far, counted.recall, one.auprc(scored), train, len(one.rows) / score))
    print(f"{'':22}{'f05_at_far':>11}{'recall':>8}{'auprc':>8}{'train, s':>10}{'ratio':>7}{'scored/s':>11}{'ratio':>7}")
    first = np.mean(found["gmppredictor"], 0)
    for name, rows in found.items():
        mean = np.mean(rows, 0)
        speed = f"{mean[3]:10.2f}{mean[3] / first[3]:7.2f}{mean[4]:11,.0f}{mean[4] / first[4]:7.2f}"
        print(f"{name:22}{mean[0]:11.3f}{mean[1]:8.3f}{mean[2]:8.3f}{speed}", flush=True)


def written(folder: Path, days: int = 8, drives: int = 40_000) -> int:
    """Days in the layout of the Alibaba logs, 105 columns of which half are empty; returns the rows."""
    import polars as pl

    rng = np.random.default_rng(0)
    told = [1, 5, 9, 12, 170, 171, 172, 173, 174, 175, 180, 183, 184, 187, 188, 190, 194, 195, 196, 197, 198, 199, 206, 233, 241, 242]
    silent = list(range(100, 125))
    for day in range(days):
        stamp = f"201801{day + 1:02d}"
        columns: dict[str, Any] = {"disk_id": np.arange(drives), "ds": [stamp] * drives, "model": rng.choice(["MA1", "MB1", "MC1"], drives)}
        for a in told:
            columns |= {f"n_{a}": rng.integers(1, 101, drives), f"r_{a}": rng.integers(0, 10 ** int(rng.integers(1, 9)), drives)}
        for a in silent:
            columns |= {f"n_{a}": pl.Series([None] * drives, dtype=pl.Int64), f"r_{a}": pl.Series([None] * drives, dtype=pl.Int64)}
        pl.DataFrame(columns).write_csv(folder / f"{stamp}.csv")
    return days * drives


def reading() -> None:
    """Rows per second of the reader with its checks, of the kept log, and of Polars without any check."""
    import polars as pl

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "log")
        folder.mkdir()
        rows = written(folder)
        size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6

        def plain() -> Any:
            read = pl.scan_csv(folder / "*.csv", infer_schema=False)
            return read.with_columns(pl.all().exclude("ds", "model", "disk_id").cast(pl.Float64)).sort("model", "disk_id", "ds").collect()

        bare, _ = best_of(3, plain)
        ours, fleet = best_of(3, lambda: read_alibaba(folder))
        read_alibaba(folder, cache=Path(name, "kept"))
        again, _ = best_of(3, lambda: read_alibaba(folder, cache=Path(name, "kept")))
    assert isinstance(fleet, Fleet)
    assert fleet.rows == rows
    print(f"{rows:,} rows of 105 columns, {size:.0f} MB")
    for what, seconds in (("read_alibaba", ours), ("read_alibaba, kept log", again), ("Polars, unchecked", bare)):
        print(f"{what:24}{rows / seconds:12,.0f} rows/s  {bare / seconds:6.2f} of Polars")


def scoring(drives: int) -> None:
    """Windows per second of one network of each kind, and PyTorch's own for the same windows."""
    import torch

    from armillary.observability.drives.features.windows import places
    from armillary.observability.drives.networks.parts import made

    one = work(0, drives)
    scorer: Any = GmpPredictor(epochs=1, ensemble=1).learn(one.lesson())
    ours, _ = best_of(3, lambda: one.scored(scorer))
    part = next(iter(scorer.parts.values()))
    module = made("both", len(part.scaling.columns), 32, 4, 0)
    rows = one.rows[:8192]

    def theirs() -> None:
        with torch.no_grad():
            for at in range(0, len(rows), 2048):
                where = places(one.days, rows[at : at + 2048], 30)
                module(torch.from_numpy(part.scaling.rows(one.days, where.ravel()).reshape(*where.shape, -1)))

    torch.set_num_threads(cores())
    seconds, _ = best_of(3, theirs)
    speed, other = len(one.rows) / ours, len(rows) / seconds
    print(
        f"compiled loops on {cores()} cores {speed:,.0f} windows/s, PyTorch on as many threads {other:,.0f} windows/s: {speed / other:.2f}"
    )


def training() -> None:
    """One training of the large fleet, without the bounds of a comparison: 12,000 drives, 180 days, 1,500 failures, one member."""
    fleet = draw(stream(0, "benchmark", "large"), 12_000, 180, 1500, horizon=30, models=6)
    lesson = DrivesWork(fleet, 30).lesson()
    begin, cpu = time.perf_counter(), time.process_time()
    GmpPredictor(ensemble=1).learn(lesson)
    print(f"{time.perf_counter() - begin:.0f} s, {time.process_time() - cpu:.0f} CPU s for a member of every partition")


def main() -> None:
    """Runs the parts that were asked for; all but the long one by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("quality", "reading", "scoring", "training"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--drives", type=int, default=2500)
    wanted = parser.parse_args()
    warnings.simplefilter("ignore")
    every = not (wanted.quality or wanted.reading or wanted.scoring or wanted.training)
    if wanted.reading or every:
        reading()
    if wanted.scoring or every:
        scoring(wanted.drives)
    if wanted.quality or every:
        quality(wanted.drives)
    if wanted.training:
        training()


if __name__ == "__main__":
    main()
