"""Stored answers are never old: a changed file, preset or technique gives the new answer without --fresh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import armillary

REQUESTS = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,37,4\n2023-11-16 18:15:50.99,39,5\n"
LINK = "time_s,bandwidth_mbps\n0,{rate}\n1,{rate}\n"


def test_a_changed_bandwidth_file_changes_the_answer(tmp_path: Path) -> None:
    work, up = tmp_path / "r.csv", [tmp_path / "up.csv", tmp_path / "up2.csv"]
    work.write_text(REQUESTS)

    def latency(rate: float) -> float:
        up[0].write_text(LINK.format(rate=rate))
        up[1].write_text(LINK.format(rate=1000))
        options = {"bandwidth": f"{up[0]},{up[1]}", "model": "llama-3.2-1b", "others": "false"}
        how = {"techniques": ["hyperion"], "metrics": ["mean_latency"], "repeats": 1, "store": tmp_path / "s.db"}
        return armillary.compare("serving/tiers", work=work, options=options, **how).medians("hyperion", "mean_latency")["r.csv"]

    fast = latency(1000)
    slow = latency(0.1)
    assert slow > 1.5 * fast
    assert latency(1000) == fast


@pytest.mark.slow
def test_an_edited_preset_changes_the_answer(tmp_path: Path) -> None:
    """In a copy of the package: what a preset says counts like code."""
    shutil.copytree(Path(armillary.__file__).parent, tmp_path / "armillary", ignore=shutil.ignore_patterns("__pycache__"))
    preset = tmp_path / "armillary" / "cluster" / "presets" / "tiers-3.toml"

    def latency() -> float:
        choice = ["--techniques", "gpipe", "--cases", "llama-3-8b/0.3", "--metrics", "mean_latency", "--repeats", "1"]
        command = [sys.executable, "-m", "armillary.cli", "compare", "serving/tiers", "--scale", "tiny", *choice, "--json", "-q"]
        surroundings = {**os.environ, "PYTHONPATH": str(tmp_path), "ARMILLARY_STORE": str(tmp_path / "s.db")}
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings, cwd=tmp_path)
        return float(json.loads(run.stdout)["summary"][0]["median"])

    before = latency()
    text = preset.read_text()
    assert 'model = "rtx-4090"' in text
    preset.write_text(text.replace('model = "rtx-4090"', 'model = "orin-agx"'))
    assert latency() != before
    preset.write_text(text)
    assert latency() == before
