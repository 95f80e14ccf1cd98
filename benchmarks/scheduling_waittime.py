"""How near learned-wait is to other learners on the same features, what false waits cost, and what it all takes.

python benchmarks/scheduling_waittime.py prints the mean absolute error of every learner beside LightGBM's on the same features, the same
two heads and the same slices, in one run (goal: boosting within 5 % of the best); the error after learning from permuted waits beside that
of the recent mean (goal: at most 5 % more); CPU seconds of the features of 500,000 jobs (goal: 60 s) and of training on 100,000 jobs (goal:
60 s on two cores); and microseconds per answer (goal: 200). Last, one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from typing import Any

import numpy as np

from armillary.scheduling.waittime import LearnedWait, Log, RecentMean, WaitWork, built_in, known_at_submission
from armillary.scheduling.waittime.features.names import columns
from armillary.scheduling.waittime.learning.heads import DEPTH, LEAVES, PATIENCE, TREES
from armillary.scheduling.waittime.learning.rows import fitted, known, rows
from armillary.streams import stream

LOADS, LEARNERS = (0.7, 0.85, 0.95), ("boosting", "forest", "knn", "mlp")


def cpu_s(call: Any) -> tuple[float, Any]:
    """CPU seconds of a call, and what it returned."""
    start = time.process_time()
    found = call()
    return time.process_time() - start, found


def lightgbm_error(work: WaitWork, matrix: Any) -> tuple[float, float]:
    """(mean absolute error, CPU seconds of training) of LightGBM with the same heads, trees, slices and stopping rule."""
    from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping, log_evaluation

    wait = work.jobs.wait_s
    train, held = work.told(0, work.tune, work.tune), work.told(work.tune, work.test, work.test)
    how = {
        "n_estimators": TREES,
        "max_depth": DEPTH,
        "num_leaves": LEAVES,
        "n_jobs": 1,
        "verbose": -1,
        "random_state": 0,
        "deterministic": True,
    }
    stop = [early_stopping(PATIENCE, verbose=False), log_evaluation(0)]

    def fit() -> tuple[Any, Any]:
        now = wait < 10
        zero = LGBMClassifier(**how).fit(matrix[train], now[train], eval_X=matrix[held], eval_y=now[held], callbacks=stop)
        late, late_held = train[~now[train]], held[~now[held]]
        slow = LGBMRegressor(objective="mae", **how).fit(
            matrix[late], np.log1p(wait[late]), eval_X=matrix[late_held], eval_y=np.log1p(wait[late_held]), callbacks=stop
        )
        return zero, slow

    seconds, (zero, slow) = cpu_s(fit)
    judged = matrix[work.test :]
    point = np.where(zero.predict_proba(judged)[:, 1] > 0.5, 0.0, np.expm1(np.maximum(slow.predict(judged), 0.0)))
    return float(np.abs(point - wait[work.test :]).mean()), seconds


def learners(jobs: int) -> dict[str, dict[str, float]]:
    """Errors relative to the best of all learners (geometric mean over loads), and CPU seconds of training, each on its own log."""
    errors: dict[str, list[float]] = {name: [] for name in (*LEARNERS, "lightgbm")}
    seconds: dict[str, list[float]] = {name: [] for name in errors}
    for load in LOADS:
        work = WaitWork(built_in(stream(1, "benchmark", str(load)), "estimates", jobs, 256, load))
        for name in LEARNERS:
            technique = LearnedWait(model=name)
            spent, model = cpu_s(lambda technique=technique, work=work: technique.learn(work))
            found = technique.predictions(work, model).point_s[work.test - work.tune :]
            errors[name].append(float(np.abs(found - work.jobs.wait_s[work.test :]).mean()))
            seconds[name].append(spent)
        whole = LearnedWait()
        seen = known(whole, work.log)
        matrix = np.column_stack(list(columns(seen.matrix, whole.features()).values()))
        error, spent = lightgbm_error(work, matrix)
        errors["lightgbm"].append(error)
        seconds["lightgbm"].append(spent)
    best = np.min(np.array(list(errors.values())), axis=0)
    return {
        name: {"over_best": float(np.exp(np.log(np.array(found) / best).mean())), "train_cpu_s": statistics.median(seconds[name])}
        for name, found in errors.items()
    }


def permuted(draws: int = 5) -> float:
    """The error of the model that was taught on permuted waits over that of the recent mean (median over draws)."""
    found = []
    for draw in range(draws):
        work = WaitWork(built_in(stream(2, "benchmark", str(draw)), "estimates", 8000, 256, 0.85), "shuffled")
        errors = [
            float(np.abs(technique.predictions(work).point_s[work.test - work.tune :] - work.jobs.wait_s[work.test :]).mean())
            for technique in (LearnedWait(), RecentMean())
        ]
        found.append(errors[0] / errors[1])
    return statistics.median(found)


def cost(jobs: int, trained: int) -> dict[str, float]:
    """CPU seconds of a large log's features and of training, and microseconds per answer."""
    log = built_in(stream(3, "benchmark"), "estimates", jobs, 256, 0.85)
    known_at_submission(Log.of(log.take(slice(0, 300))))
    features, seen = cpu_s(lambda: known_at_submission(Log.of(log)))
    part, how = log.take(slice(0, trained)), LearnedWait()
    chosen = how.features()
    cut = int(0.8 * trained)
    sides = [rows(seen, chosen, part, np.arange(*ends)) for ends in ((0, cut), (cut, trained))]
    training, model = cpu_s(lambda: fitted(how, *sides))
    work = WaitWork(part.take(slice(0, min(trained, 20_000))))
    how.predictions(work, model)
    answering, found = cpu_s(lambda: how.predictions(work, model))
    return {"features_s": features, "training_s": training, "answer_us": 1e6 * answering / len(found.point_s)}


def main() -> None:
    """Prints every figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller logs, to see that it runs")
    wanted = parser.parse_args()
    found: dict[str, Any] = {"learners": learners(2000 if wanted.quick else 8000)}
    for name, one in found["learners"].items():
        print(f"{name:9} {one['over_best']:.3f} × the best learner's error, training {one['train_cpu_s']:6.2f} CPU s")
    ours = found["learners"]
    ratio = ours["boosting"]["over_best"] / ours["lightgbm"]["over_best"]
    print(f"boosting's error is {ratio:.3f} × LightGBM's, its training takes "
          f"{ours['boosting']['train_cpu_s'] / ours['lightgbm']['train_cpu_s']:.2f} × as long")  # fmt: skip
    found["permuted"] = permuted(1 if wanted.quick else 5)
    print(f"taught on permuted waits: {found['permuted']:.3f} × the error of the recent mean")
    jobs, trained = (20_000, 5_000) if wanted.quick else (500_000, 100_000)
    found["cost"] = cost(jobs, trained)
    c = found["cost"]
    print(f"features of {jobs:,} jobs {c['features_s']:.1f} CPU s; training on {trained:,} jobs {c['training_s']:.1f} CPU s; "
          f"{c['answer_us']:.1f} µs per answer")  # fmt: skip
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {found['peak_mib']:.0f} MiB")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
