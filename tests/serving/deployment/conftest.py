"""Real servers, which are always ended, and schemas that are read once."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

KEY = "a-key-for-tests"


@dataclass
class Started:
    """The process and the address of a server."""

    process: subprocess.Popen
    url: str


@contextlib.contextmanager
def started(*arguments: str, key: str | None = None) -> Iterator[Started]:
    """Runs `armillary serve --port 0 ...` as a process until the end of the block."""
    env = {k: v for k, v in os.environ.items() if k != "ARMILLARY_API_KEY"} | ({"ARMILLARY_API_KEY": key} if key else {})
    command = [sys.executable, "-m", "armillary.cli", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        line = process.stdout.readline()
        assert " on http://127.0.0.1:" in line, process.communicate(timeout=30)
        yield Started(process, line.split()[-1])
    finally:
        process.kill()
        process.wait(timeout=30)
        process.stdout.close()
        process.stderr.close()


@pytest.fixture
def armillary_command(tmp_path, monkeypatch, capsys):
    """Runs the command line in this process and an empty folder, because each of many process starts would take a second."""
    from armillary.cli import main

    def run(*arguments: str) -> subprocess.CompletedProcess:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["armillary", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, left.value.code or 0, said.out, said.err)

    return run


@pytest.fixture(scope="session", autouse=True)
def schemas_are_read_once():
    """Keeps Kubernetes' schemas in memory, which kubernetes-validate would read again for each object."""
    with contextlib.suppress(ImportError), pytest.MonkeyPatch.context() as patch:
        from kubernetes_validate import utils

        for name in ("schema_contents", "all_versions"):
            patch.setattr(utils, name, functools.cache(getattr(utils, name)))
        yield
        return
    yield


@pytest.fixture(scope="session")
def start():
    """Starts further servers."""
    return started


@pytest.fixture(scope="session")
def adapter_folder(tmp_path_factory):
    """Writes a PEFT adapter for tiny-llama, named fables."""
    import torch
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("adapters") / "fables"
    folder.mkdir()
    rng = torch.Generator().manual_seed(3)
    tensors = {}
    for layer in range(4):
        at = f"base_model.model.model.layers.{layer}.self_attn.q_proj."
        tensors[f"{at}lora_A.weight"] = torch.randn((4, 128), generator=rng)
        tensors[f"{at}lora_B.weight"] = torch.randn((128, 4), generator=rng)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 8}))
    return folder


@pytest.fixture(scope="session")
def server(adapter_folder):
    """Starts one server with a key and an adapter, for all tests that do it no harm."""
    with started("--adapter", str(adapter_folder), "--most", "80", key=KEY) as up:
        yield up
