"""Descriptions are refused with the right words, and are read from what people already have."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import catalogue
from armillary.errors import InputError
from armillary.serving.deployment import TARGETS, Service
from armillary.serving.deployment.description.command_lines import from_command
from armillary.serving.deployment.description.files import built_in
from armillary.serving.deployment.description.service import looks_secret
from armillary.serving.deployment.description.yaml_files import load_all

pytest.importorskip("yaml")
BASE = {
    "name": "s", "engine": "vllm", "image": "r.example/vllm:1", "model": {"source": "hf", "id": "a/b"}, "resources": {"gpus_per_node": 1},
}  # fmt: skip
TOKEN = "hf_" + "aB3dE5" * 6
LETTERS = "abcdefghijklmnopqrstu"
BILLION_LAUGHS = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in itertools.pairwise(LETTERS))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"imagee": "x:1"}, 'unknown key "imagee" .*did you mean "image"'),
        ({"network": {"prot": 1}}, 'network.prot: unknown key "prot" .*"port"'),
        ({"parts": [{"name": "p", "image": "x:1", "port": 1, "command": ["x"], "prot": 2}]}, 'unknown key "prot"'),
        ({"network": {"port": 0}}, "network.port: found 0; .*greater than or equal to 1"),
        ({"network": {"port": 65536}}, "65536"),
        ({"network": {"port": "8000"}}, "network.port: found '8000'; .*valid integer"),
        ({"image": "vllm/vllm-openai"}, "without tag or digest"),
        ({"image": "Not An Image:1"}, "image"),
        ({"image": "r.example/x@sha256:12"}, "image"),
        ({"env": {"HF_TOKEN": TOKEN}}, "looks like a secret"),
        ({"env": {"X": "9f8Ad71kQz0LmW4xTr5Uo2Yc"}}, "looks like a secret"),
        ({"secrets": {"HF_TOKEN": TOKEN}}, "name of a secret"),
        ({"auth": {"api_key_secret": "sk-" + "a1B2" * 8}}, "name of a secret"),
        ({"engine_args": {"api-key": "x"}}, "derived"),
        ({"engine_args": {"hf-token": TOKEN}}, "looks like a secret"),
        ({"engine_args": {"--port": 1}}, "without dashes"),
        ({"env": {"A B": "x"}}, "letters, digits and _"),
        ({"env": {"A": "x\0"}}, "NUL"),
        ({"cache": {"kubernetes": {"pvc": "a", "host_path": "/b"}}}, "both pvc and host_path"),
        ({"cache": {"hpc": {"lustre": "/a", "host_path": "/b"}}}, "one of lustre and host_path"),
        ({"cache": {"hpc": {"lustre": "relative"}}}, "absolute path"),
        ({"cache": {"hpc": {"lustre": "/a/../b"}}}, "absolute path"),
        ({"parallel": {"tensor": 2}}, r"tensor × pipeline = 2 × 1 = 2, but nodes × gpus_per_node = 1 × 1 = 1"),
        ({"parallel": {"nodes": 2}, "resources": {"gpus_per_node": 1}}, "but nodes"),
        ({"engine": "llama-cpp", "parallel": {"nodes": 2, "tensor": 2}}, "llama-cpp runs on one node"),
        ({"parallel": {"nodes": 2, "tensor": 2}, "scale": {"max": 2}}, "not scaled"),
        ({"resources": {"gpus_per_node": 0}}, "needs GPUs"),
        ({"lifetime_h": 0}, "lifetime_h"),
        ({"lifetime_h": 30.0, "hpc": {"limit_h": 24.0}}, "the partition's limit is 24 h"),
        ({"scale": {"min": 3, "max": 2}}, "min 3 above max 2"),
        ({"network": {"expose": "ingress"}}, "needs host"),
        ({"network": {"host": "a b"}}, "host name"),
        ({"name": "Has Spaces"}, "lower-case"),
        ({"name": "a" * 48}, "name"),
        ({"model": {"source": "s3", "id": "a/b"}}, "s3://bucket/prefix"),
        ({"model": {"source": "hf", "id": "../../etc"}}, "owner/name"),
        ({"model": {"source": "path", "id": "a/../../b"}}, "inside the cache"),
        ({"model": {"source": "built-in", "id": "tiny-llama"}}, "engine armillary"),
        ({"user": 0}, "user"),
        ({"parts": [{"name": "s", "image": "x:1", "port": 1, "command": ["x"]}]}, "the same name"),
        ({"parts": [{"name": "p", "image": "x:1", "port": 8000, "command": ["x"]}]}, "the same port"),
        ({"parts": [{"name": "p", "image": "x:1", "port": 1, "command": ["x"], "env": {"U": "@url(q)"}}]}, "names no part"),
        ({"hpc": {"partition": "a\nb"}}, "partition"),
        ({"health": {"path": "health\n"}}, "health.path"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(more, says):
    with pytest.raises(InputError, match=says) as caught:
        Service.parse({**BASE, **more}, "x.toml")
    assert all("\n" not in fault and fault.startswith("x.toml") for fault in caught.value.faults)
    assert TOKEN not in str(caught.value)


def test_every_fault_of_a_file_is_listed():
    with pytest.raises(InputError) as caught:
        Service.parse({**BASE, "imagee": 1, "network": {"port": 0}, "lifetime_h": "x"})
    assert len(caught.value.faults) == 3


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.toml", "name = ", "not TOML"),
        ("a.json", "{", "expected JSON"),
        ("a.json", "[1]", "expected a table"),
        ("a.yaml", "a: [", "not YAML"),
        ("a.yaml", "a: 1\n---\nb: 2\n", "found 2 documents"),
        ("a.yaml", "name: !!python/object/apply:os.system ['true']\n", "tag"),
        ("a.yaml", "name: !mine x\n", "tag"),
        ("a.yaml", "a: &a [*a]\n", "alias inside"),
        ("a.yaml", BILLION_LAUGHS, "more than 100,000"),
        ("a.yaml", "services: {a: {image: 'x:1'}}\n", "found 0 services"),
        ("a.sh", "echo hello\n", "found no `vllm serve`"),
        ("a.sh", "vllm serve 'unclosed\n", "not a command line"),
        ("a.sh", "vllm serve a/b --api-key sekrit\n", "no secret"),
        ("a.sh", "docker run --bogus x img:1\n", "--bogus"),
        ("a.sh", "docker run -e HF_TOKEN=" + TOKEN + " img:1 --model a/b\n", "looks like a secret"),
        ("a.sh", "docker run vllm/vllm-openai --model a/b\n", "without tag or digest"),
        ("a.sh", "vllm serve a/b --tensor-parallel-size two\n", "whole number"),
    ],
)
def test_files_that_cannot_be_read_are_refused_in_a_line(tmp_path, name, text, says):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=says) as caught:
        Service.read(path)
    assert "\n" not in caught.value.faults[0]
    assert str(path) in caught.value.faults[0]


def test_an_absent_file_is_refused_with_the_built_in_names(tmp_path):
    with pytest.raises(InputError, match=r"no such file; built in: .*tiny"):
        Service.read(tmp_path / "absent.toml")


def test_a_built_in_name_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    assert Service.read("tiny").name == "tiny"
    case = next(case for case in catalogue.arena("serving/deployment").built_in("tiny") if case.name == "tiny")
    assert case.workload.service.name == "tiny"
    with pytest.raises(InputError):
        Service.read(Path("tiny"))


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from([*Service.model_fields, "port", "id", "x"]), x, max_size=4),
        max_leaves=12,
    )
)
def test_any_data_is_a_service_or_an_input_error(content):
    try:
        Service.parse(content)
    except InputError as problem:
        assert all("\n" not in fault for fault in problem.faults)  # noqa: PT017


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab:[]{}-&*!|> \n'\"#,?%@\t0", max_size=60))
def test_any_yaml_is_data_or_an_input_error(text):
    with contextlib.suppress(InputError):
        load_all(text, "x.yaml")


@pytest.mark.parametrize("name", built_in())
def test_a_description_survives_its_own_toml_and_yaml(name, tmp_path):
    import yaml

    service = Service.read(name)
    (tmp_path / "a.toml").write_text(service.to_toml())
    assert Service.read(tmp_path / "a.toml") == service
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(service.model_dump(mode="json", exclude_defaults=True)))
    assert Service.read(tmp_path / "a.yaml").digest == service.digest
    (tmp_path / "a.json").write_text(json.dumps(service.model_dump(mode="json")))
    assert Service.read(tmp_path / "a.json").digest == service.digest


def test_a_vllm_line():
    service = from_command(
        "vllm serve meta-llama/Llama-3.1-70B --port 9000 -tp 4 --max-model-len=8192 --enforce-eager --api-key $LLM_KEY --seed -1\n"
    )
    assert service.model.id == "meta-llama/Llama-3.1-70B"
    assert service.network.port == 9000
    assert service.parallel.tensor == service.resources.gpus_per_node == 4
    assert service.engine_args == {"max-model-len": 8192, "enforce-eager": True, "seed": -1}
    assert service.auth.api_key_secret == "llm-key"
    assert service.name == "llama-3-1-70b"


def test_a_docker_line_and_what_it_renders():
    line = """sudo docker run -d --name my_llm --gpus 2 --shm-size 32g -p 8080:8000 -e FOO='a b' -e HF_TOKEN \\
        -v /data/models:/models --user 1001:1001 vllm/vllm-openai:v0.11.0 --model mistralai/Mistral-7B-v0.1 --tensor-parallel-size 2"""
    service = from_command(line)
    assert (service.name, service.user, service.network.port) == ("my-llm", 1001, 8000)
    assert service.env == {"FOO": "a b"}
    assert service.secrets == {"HF_TOKEN": "hf-token"}
    assert (service.resources.gpus_per_node, service.resources.shm_gib) == (2, 32)
    assert service.cache.local.path == "/data/models"
    assert "--shm-size=32g" in service.render("slurm-podman")["node.sh"]


@pytest.mark.parametrize("name", ["llama-3.1-8b-1gpu", "rag"])
def test_a_rendered_compose_file_is_read_back(name, tmp_path):
    service = Service.read(name)
    path = tmp_path / "compose.yaml"
    text = service.render("compose")["compose.yaml"]
    if name == "llama-3.1-8b-1gpu":
        import yaml

        content = yaml.safe_load(text)
        del content["services"]["stage"]
        text = yaml.safe_dump(content)
    path.write_text(text)
    again = Service.read(path)
    for setting in ("name", "image", "engine", "engine_args"):
        assert getattr(again, setting) == getattr(service, setting)
    assert again.network.port == service.network.port
    assert [p.name for p in again.parts] == sorted(p.name for p in service.parts)
    assert all(again.render(target) for target in TARGETS)


@pytest.mark.parametrize("text", [TOKEN, "sk-" + "x" * 20, "AKIAIOSFODNN7EXAMPLE", "-----BEGIN RSA PRIVATE KEY-----", "ghp_" + "a1" * 18])
def test_tokens_are_seen(text):
    assert looks_secret(text)


PLAIN = ("hello", "meta-llama/Llama-3.1-8B", "/usr/local/lib/python3.11/site-packages", "a" * 40, "NCCL_SOCKET_IFNAME_2", "1234567890" * 3)


@pytest.mark.parametrize("text", [*PLAIN, "hsn0,hsn1"])
def test_plain_words_are_no_tokens(text):
    assert not looks_secret(text)


def test_the_command_line(armillary_command, tmp_path):
    (tmp_path / "service.toml").write_text(Service.read("llama-3.1-8b-1gpu").to_toml())
    run = armillary_command("deploy", "render", "service.toml", "--to", "kubernetes,slurm-apptainer", "-o", "out")
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert (tmp_path / "out" / "slurm-apptainer" / "job.sh").stat().st_mode & 0o100
    assert armillary_command("deploy", "check", "out").returncode == 0
    edited = tmp_path / "out" / "kubernetes" / "service-llama-8b.yaml"
    edited.write_text(edited.read_text().replace("targetPort: 8000", "targetPort: 8001"))
    run = armillary_command("deploy", "check", "out")
    assert run.returncode == 1
    assert "targetPort = containerPort" in run.stdout
    for bad in ("render service.toml --to kubernetess", "render absent.toml", "check absent", "render service.toml -o out"):
        run = armillary_command("deploy", *bad.split())
        assert run.returncode == 2, run
        assert run.stderr.startswith("armillary: ")
        assert run.stderr.count("\n") == 1
    assert subprocess.run(["bash", "-n", str(tmp_path / "out" / "slurm-apptainer" / "job.sh")]).returncode == 0


def test_serve_and_smoke_refuse_in_a_line(armillary_command):
    for bad in ("serve --port 70000", "serve --model absent", "serve --host 0.0.0.0", "smoke nowhere", "smoke http://127.0.0.1:1 --requests 0"):
        run = armillary_command(*bad.split())
        assert run.returncode == 2, run
        assert re.fullmatch(r"armillary: [^\n]+\n", run.stderr)
    gone = armillary_command("smoke", "http://127.0.0.1:1")
    assert gone.returncode == 1
    assert "FAIL" in gone.stdout
