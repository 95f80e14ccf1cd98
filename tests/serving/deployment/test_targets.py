"""Rendered files must agree with each other, pass oracles that share no code with the renderers, and survive hostile values."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.serving.deployment import TARGETS, ByHand, Converged, Service
from armillary.serving.deployment import check as check_files
from armillary.serving.deployment import honoured as read_back
from armillary.serving.deployment.by_hand import written_lines
from armillary.serving.deployment.checking.checks import COMPOSE, check_folder, manifests, no_secret
from armillary.serving.deployment.description.files import FOLDER, built_in
from armillary.serving.deployment.rendering.host_scripts import HEAD_OF_NODES
from armillary.serving.deployment.rendering.shell import untouched
from armillary.serving.deployment.rendering.slurm import walltime
from armillary.serving.deployment.rendering.targets import write
from armillary.serving.deployment.rendering.template import render as template

yaml = pytest.importorskip("yaml")
SERVICES = ("tiny", "llama-3.1-8b-1gpu", "llama-3.1-70b-4gpu", "llama-3.1-405b-4x4", "rag")

AWKWARD = ["two words", "a 'single' and a \"double\"", "$(touch /tmp/x) `id` ${HOME}", "line\nanother\n", "comma,semi;colon=equals", "{{ .Values.x }}", "ünï 世界", "\\n \\", "", "- !tag *a &b #c: d", "@url(x", "%s%n", "true", "~"]  # fmt: skip
BASE = {
    "name": "s", "engine": "vllm", "image": "r.example/vllm:1", "model": {"source": "path", "id": "m"},
    "resources": {"gpus_per_node": 1, "cpus": 2, "memory_gib": 4},
}  # fmt: skip


def make(**more):
    return Service.parse({**BASE, **more})


def engine_of(things):
    """Returns the engine's container and the workload that holds it."""
    for thing in things:
        if thing["kind"] in ("Deployment", "StatefulSet") and thing["metadata"]["labels"]["app.kubernetes.io/component"] == "engine":
            return thing["spec"]["template"]["spec"]["containers"][0], thing
    raise AssertionError("no engine")


def faults(service, target):
    """Returns the checks that a target's files fail, and the settings that are not in them."""
    files = service.render(target)
    failed = [c for c in check_files(files, target) if c.passed is False]
    return failed + [f.setting for f in read_back(service, files, target) if not f.held]


def stand_ins(folder, **programs):
    """Writes programs that stand in for real ones; returns the environment that finds them first."""
    folder.mkdir()
    for name, script in programs.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_the_built_in_services_are_the_five():
    assert sorted(built_in()) == sorted(SERVICES)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["llama-3.1-405b-4x4", *(pytest.param(n, marks=pytest.mark.slow) for n in SERVICES if "405b" not in n)])
def test_every_check_passes_and_every_setting_is_there(name, target):
    # The arena's own test checks the files of llama-3.1-8b-1gpu.
    service = Service.read(name)
    files = service.render(target)
    assert files == Service.read(name).render(target)
    assert faults(service, target) == []
    assert all(untouched(text) for text in files.values())
    assert all(service.digest in text for text in files.values())


@pytest.mark.parametrize("name", SERVICES)
def test_probes_ask_the_health_path_for_as_long_as_weights_load(name):
    service = Service.read(name)
    container, workload = engine_of(manifests(service.render("kubernetes"), "kubernetes").values())
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": service.health.path, "port": service.network.port}
    waited = container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"]
    assert service.health.start_s <= waited < service.health.start_s + service.health.period_s
    assert workload["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize("name", SERVICES[1:])
def test_gpus_over_all_pods_are_tensor_times_pipeline(name):
    service = Service.read(name)
    total = 0
    for thing in manifests(service.render("kubernetes"), "kubernetes").values():
        if thing["kind"] in ("Deployment", "StatefulSet"):
            limits = thing["spec"]["template"]["spec"]["containers"][0].get("resources", {}).get("limits", {})
            gpus = int(limits.get("nvidia.com/gpu", 0)) + int(limits.get("amd.com/gpu", 0))
            total += gpus * (thing["spec"]["replicas"] if service.parallel.nodes > 1 else 1)
    assert total == service.parallel.tensor * service.parallel.pipeline


@pytest.mark.parametrize("target", TARGETS)
def test_amd_gets_nothing_of_nvidia(target):
    text = "\n".join(Service.read("llama-3.1-70b-4gpu").render(target).values())
    assert "nvidia" not in text
    assert not re.search(r"--nv\b", text)
    if target in ("slurm-podman", "slurm-apptainer", "flux", "compose"):
        assert "/dev/kfd" in text
    if target in ("kubernetes", "helm"):
        assert re.search(r"amd\.com/gpu: '4'", text)
    nvidia = "\n".join(Service.read("llama-3.1-8b-1gpu").render(target).values())
    assert "/dev/kfd" not in nvidia
    assert "rocm" not in nvidia


@pytest.mark.parametrize("target", TARGETS)
def test_405b_spans_four_nodes_that_agree(target):
    service = Service.read("llama-3.1-405b-4x4")
    files = service.render(target)
    text = "\n".join(files.values())
    if target in ("kubernetes", "helm"):
        pods = [t["spec"]["template"]["spec"] for t in manifests(files, target).values() if t["kind"] == "StatefulSet"]
        code = "\n".join(pod["containers"][0]["command"][2] for pod in pods)
    elif target == "compose":
        code = yaml.safe_load(files["compose.yaml"])["services"]["llama-405b"]["command"][1].replace("$$", "$")
    else:
        code = text
    flat = re.sub(r"[\\\s]+", " ", code)
    assert re.search(r"--tensor-parallel-size 4 .*--pipeline-parallel-size 4", flat)
    assert 'ray start --head --node-ip-address="$HEAD_ADDRESS" --port="$HEAD_PORT" --num-gpus=4' in flat
    assert 'ray start --address="$HEAD_ADDRESS:$HEAD_PORT" --num-gpus=4 --block' in flat
    if target.startswith("slurm"):
        assert "#SBATCH --nodes=4\n" in text
        assert "srun --nodes=4 --ntasks=4" in text
        assert text.count("HEAD_ADDRESS=$(") == 1
    if target == "kubernetes":
        workers = next(t for t in manifests(service.render(target), target).values() if t["metadata"]["name"] == "llama-405b-worker")
        env = {e["name"]: e.get("value") for e in workers["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert env["HEAD_ADDRESS"] == "llama-405b-0.llama-405b-nodes"
        assert env["HEAD_PORT"] == "6379"
        assert workers["spec"]["serviceName"] == "llama-405b-nodes"
        assert workers["spec"]["replicas"] == 3


def test_a_node_that_cannot_be_looked_up_goes_by_its_name():
    script = "\n".join(["set -euo pipefail", "node_list=no-such-node.invalid,other", *HEAD_OF_NODES, 'echo "$HEAD_ADDRESS"'])
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout == "no-such-node.invalid\n"


@pytest.mark.parametrize("index", range(4))
def test_a_worker_knows_its_rank_from_its_name(index):
    things = manifests(Service.read("llama-3.1-405b-4x4").render("kubernetes"), "kubernetes").values()
    worker = next(t for t in things if t["metadata"]["name"].endswith("worker"))
    shell, option, script = worker["spec"]["template"]["spec"]["containers"][0]["command"]
    first = script.partition("if [")[0] + 'printf %s "$NODE_RANK"'
    env = {"HOSTNAME": f"llama-405b-worker-{index}", "PATH": os.environ["PATH"]}
    assert subprocess.check_output([shell, option, first], env=env, text=True) == str(index + 1)


def test_nothing_of_the_environment_and_no_secret_is_in_any_file(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_" + "aB3" * 12)
    monkeypatch.setenv("VLLM_API_KEY", "very-private-key-of-mine")
    common = {"/usr/bin", "C.UTF-8", "unknown"}
    values = {v for k, v in os.environ.items() if len(v) >= 10 and v not in common and k not in ("PWD", "OLDPWD", "SHELL")}
    for name, target in itertools.product(SERVICES, TARGETS):
        for file, text in Service.read(name).render(target).items():
            assert not [v for v in values if v in text], (target, file)
            assert no_secret(file, text).passed


def test_a_secret_that_slips_in_is_seen(monkeypatch):
    files = Service.read("tiny").render("bare")
    for leak in ("hf_" + "aB3" * 12, "9f8Ad71kQz0LmW4xTr5Uo2Yc"):
        broken = {**files, "env.sh": files["env.sh"] + f"export X={leak}\n"}
        assert [c.where for c in check_files(broken, "bare") if c.what == "no secret" and not c.passed] == ["env.sh"]
    monkeypatch.setenv("MY_TOKEN", "plain words here")
    broken = {**files, "env.sh": files["env.sh"] + "# plain words here\n"}
    assert any(c.what == "no secret" and not c.passed for c in check_files(broken, "bare"))


def variables(said):
    """Returns what `env -0` printed as a dict."""
    return dict(pair.split("=", 1) for pair in said.split("\0") if pair)


def exported(files, tmp_path):
    """Returns the variables after bash itself has sourced env.sh."""
    path = tmp_path / "env.sh"
    path.write_text(files["env.sh"])
    env = {"PATH": os.environ["PATH"], "HOME": "/nowhere"}
    return variables(subprocess.check_output(["bash", "-c", '. "$0"; env -0', str(path)], env=env).decode())


def test_awkward_values_survive_every_target(tmp_path):
    values = {f"X{i}": value for i, value in enumerate(AWKWARD)}
    service = make(env=values)
    for target in ("slurm-apptainer", "slurm-podman", "flux", "bare"):
        assert exported(service.render(target), tmp_path).items() >= values.items()
    for target in ("kubernetes", "helm"):
        container, _ = engine_of(manifests(service.render(target), target).values())
        held = {e["name"]: e["value"] for e in container["env"] if e["name"] in values}
        # The kubelet makes $$( a plain $( and would expand $(NAME).
        assert {name: value.replace("$$(", "$(") for name, value in held.items()} == values
        assert not any(re.search(r"(?<!\$)\$\(", value) for value in held.values())
    composed = yaml.safe_load(service.render("compose")["compose.yaml"])["services"]["s"]["environment"]
    assert {name: composed[name].replace("$$", "$") for name in values} == values
    assert not any("$" in composed[name].replace("$$", "") for name in values)
    for target in TARGETS:
        assert [f.setting for f in read_back(service, service.render(target), target) if not f.held] == []


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\r\x85\u2028\u2029"), max_size=40))
def test_any_value_survives_shell_and_yaml(tmp_path, value):
    try:
        service = make(env={"X": value})
    except InputError:
        return
    assert exported(service.render("bare"), tmp_path)["X"] == value
    for target in ("kubernetes", "helm"):
        container, _ = engine_of(manifests(service.render(target), target).values())
        assert next(e["value"] for e in container["env"] if e["name"] == "X").replace("$$(", "$(") == value


@pytest.mark.parametrize("runtime", ["slurm-podman", "slurm-apptainer", "bare"])
def test_the_engine_really_gets_the_values_and_the_arguments(runtime, tmp_path):
    """A program that stands in for podman, apptainer or the engine writes down what it was given."""
    values = {f"X{i}": value for i, value in enumerate(AWKWARD)}
    options = {f"option-{i}": value for i, value in enumerate(AWKWARD)}
    service = make(env=values, engine_args=options, cache={"hpc": {"lustre": str(tmp_path)}, "local": {"host_path": str(tmp_path)}})
    write(service, [runtime], tmp_path / "out")
    said = tmp_path / "said"
    script = f'#!/bin/bash\nprintf "%s\\0" "$@" >{said}.args\nenv -0 >{said}.env\n'
    env = stand_ins(tmp_path / "tools", podman=script, apptainer=script, vllm=script) | {"HOME": str(tmp_path), "PORT": "8123"}
    (tmp_path / "images").mkdir()
    for sif in re.findall(r"s-[0-9a-f]{12}\.sif", "".join(service.render("slurm-apptainer").values())):
        (tmp_path / "images" / sif).write_text("")
    subprocess.run(["bash", str(tmp_path / "out" / runtime / "node.sh")], env=env, check=True)
    arguments = Path(f"{said}.args").read_text().split("\0")
    for option, value in options.items():
        assert arguments[arguments.index(f"--{option}") + 1] == value
    assert arguments[arguments.index("--port") + 1] == "8123"
    given = variables(Path(f"{said}.env").read_text())
    prefix = "APPTAINERENV_" if runtime == "slurm-apptainer" else ""
    assert {name: given[prefix + name] for name in values} == values
    if runtime == "slurm-podman":
        assert {f"--env={name}" for name in values} <= set(arguments)


@pytest.mark.parametrize("name", SERVICES)
def test_the_chart_gives_the_same_objects_as_the_manifests(name):
    service = Service.read(name)
    plain = {(t["kind"], t["metadata"]["name"]): t for t in manifests(service.render("kubernetes"), "kubernetes").values()}
    chart = {(t["kind"], t["metadata"]["name"]): t for t in manifests(service.render("helm"), "helm").values()}
    assert chart == plain


def test_a_chart_value_reaches_every_place():
    files = Service.read("llama-3.1-8b-1gpu").render("helm")
    values = yaml.safe_load(files["values.yaml"])
    values |= {"port": 9001, "image": "r.example/other:2", "ingress": {"enabled": False, "host": "x"}, "replicas": 3}
    values["autoscaling"]["enabled"] = False
    things = manifests({**files, "values.yaml": yaml.safe_dump(values)}, "helm")
    kinds = [t["kind"] for t in things.values()]
    assert "Ingress" not in kinds
    assert "HorizontalPodAutoscaler" not in kinds
    text = json.dumps(list(things.values()))
    assert "8000" not in text
    assert "vllm-openai" not in text
    container, workload = engine_of(things.values())
    assert container["command"][container["command"].index("--port") + 1] == "9001"
    assert workload["spec"]["replicas"] == 3
    schema = json.loads(files["values.schema.json"])
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(values, schema)
    for bad in ({"port": 0}, {"port": "8000"}, {"unknown": 1}, {"replicas": -1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**values, **bad}, schema)


def test_the_template_language_by_hand():
    values = {"a": {"b": 3}, "on": True, "off": False, "list": [{"x": "p q"}, {"x": "r"}], "map": {"k": [1, 2]}, "empty": ""}
    assert template("v: {{ .Values.a.b }}", values) == "v: 3"
    assert template('{{ .Values.empty | default "d" | quote }}', values) == '"d"'
    assert template("a\n{{- if .Values.on }}\nb\n{{- end }}\nc", values) == "a\nb\nc"
    assert template("a\n{{- if .Values.off }}\nb\n{{- end }}\nc", values) == "a\nc"
    assert template("l:\n{{- range .Values.list }}\n- {{ .x | quote }}\n{{- end }}\n", values) == 'l:\n- "p q"\n- "r"\n'
    assert template("m:\n  {{- toYaml .Values.map | nindent 2 }}\n", values) == "m:\n  k:\n  - 1\n  - 2\n"
    assert template('{{ "{{" }} x }}', values) == "{{ x }}"
    for bad in ("{{ include .x }}", "{{- if .Values.on }}", "{{- end }}", "{{ .Values.a | upper }}"):
        with pytest.raises(InputError):
            template(bad, values)


@pytest.mark.parametrize("break_it", ["selector", "port", "probe", "claim", "field", "unknown"])
def test_broken_manifests_are_noticed(break_it):
    files = Service.read("llama-3.1-8b-1gpu").render("kubernetes")
    deployment, front = "deployment-llama-8b.yaml", "service-llama-8b.yaml"
    edits = {
        "selector": (deployment, lambda t: t["spec"]["selector"]["matchLabels"].update({"app.kubernetes.io/name": "other"})),
        "port": (front, lambda t: t["spec"]["ports"][0].update(targetPort=8001)),
        "probe": (deployment, lambda t: t["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"].update(port=8001)),
        "claim": (deployment, lambda t: t["spec"]["template"]["spec"]["volumes"][1]["persistentVolumeClaim"].update(claimName="no")),
        "field": (deployment, lambda t: t["spec"].update(replicas="one")),
        "unknown": (front, lambda t: t["spec"].update(prots=[])),
    }  # fmt: skip
    name, edit = edits[break_it]
    thing = yaml.safe_load(files[name])
    edit(thing)
    found = [c for c in check_files({**files, name: yaml.safe_dump(thing)}, "kubernetes", rendered=False) if c.passed is False]
    assert found, break_it


@pytest.mark.parametrize("setting", ["--max-model-len", "HF_HUB_OFFLINE", "llm-tls", "hf-token", "maxReplicas", "sizeLimit"])
def test_a_setting_that_is_lost_is_noticed(setting):
    service = Service.read("llama-3.1-8b-1gpu")
    files = {name: text.replace(setting, "nothing") for name, text in service.render("kubernetes").items()}
    assert any(not f.held for f in read_back(service, files, "kubernetes"))


def test_the_compose_schema_is_closed():
    jsonschema = pytest.importorskip("jsonschema")
    content = yaml.safe_load(Service.read("rag").render("compose")["compose.yaml"])
    jsonschema.validate(content, COMPOSE)
    content["services"]["rag"]["priviledged"] = True
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, COMPOSE)


@pytest.mark.parametrize("script", ["job.sh", "node.sh", "env.sh", "stage.sh", "image.sh"])
def test_a_broken_script_is_noticed(script):
    files = Service.read("llama-3.1-8b-1gpu").render("slurm-apptainer")
    broken = {**files, script: files[script] + "if true; then\n"}
    assert {c.what for c in check_files(broken, "slurm-apptainer") if c.passed is False} >= {"bash -n", "as rendered"}
    if shutil.which("shellcheck", path=f"{Path(os.sys.executable).parent}:{os.environ['PATH']}"):
        unquoted = {**files, script: files[script] + "rm -rf $undefined_folder/*\n"}
        assert "shellcheck" in {c.what for c in check_files(unquoted, "slurm-apptainer") if c.passed is False}


def test_an_edited_file_is_not_replaced_unasked(tmp_path):
    service = Service.read("tiny")
    paths = write(service, ["bare", "compose"], tmp_path)
    write(service, ["bare", "compose"], tmp_path)
    paths[0].write_text(paths[0].read_text() + "# mine\n")
    before = paths[0].read_text()
    with pytest.raises(InputError, match="edited after it was rendered"):
        write(service, ["bare", "compose"], tmp_path)
    assert paths[0].read_text() == before
    assert [c.where for c in check_folder(tmp_path)[paths[0].parent.name] if c.what == "as rendered" and not c.passed] == [paths[0].name]
    write(service, ["bare", "compose"], tmp_path, force=True)
    assert "# mine" not in paths[0].read_text()
    paths[0].write_text("somebody else's\n")
    with pytest.raises(InputError, match="not rendered by armillary"):
        write(service, ["bare"], tmp_path)


@pytest.mark.parametrize(("hours", "said"), [(1, "01:00:00"), (24, "1-00:00:00"), (0.5, "00:30:00"), (49.25, "2-01:15:00")])
def test_walltime(hours, said):
    assert walltime(hours) == said


def test_lines_that_a_person_writes():
    assert written_lines("# note\n\na = 1\n#SBATCH --x\n  # more\n#!/bin/bash\n") == 3
    hand = ByHand().render(Service.read("llama-3.1-8b-1gpu"))
    assert sum(map(written_lines, hand.values())) >= 150
    assert all(written_lines((FOLDER / f"{name}.toml").read_text()) <= 40 for name in SERVICES)
    assert (
        {path.partition("/")[0] for path in Converged().render(Service.read("tiny"))} == set(TARGETS) == {p.partition("/")[0] for p in hand}
    )


def test_weights_are_staged_once_and_marked(tmp_path):
    """Of two stagings at once, one fetches through a program that stands in for `hf`, and the other finds the mark."""
    script = Service.read("llama-3.1-8b-1gpu").render("bare")["stage.sh"]
    (tmp_path / "stage.sh").write_text(script)
    fake = f'#!/bin/sh\necho "$HF_HUB_OFFLINE $*" >>{tmp_path}/calls\nwhile [ $# -gt 1 ]; do shift; done\nprintf weights >"$1/model.safetensors"\n'
    env = stand_ins(tmp_path / "tools", hf=fake)
    command = ["sh", str(tmp_path / "stage.sh"), str(tmp_path / "cache")]
    both = [subprocess.Popen(command, env=env) for _ in range(2)]
    assert [p.wait(timeout=60) for p in both] == [0, 0]
    assert (tmp_path / "calls").read_text().count("download meta-llama/Llama-3.1-8B-Instruct --revision main") == 1
    assert (tmp_path / "calls").read_text().startswith("0 ")
    folder = tmp_path / "cache" / "meta-llama--Llama-3.1-8B-Instruct"
    assert (folder / ".staged").read_text() == "main"
    verify = {**env, "VERIFY": "1"}
    assert subprocess.run(command, env=verify).returncode == 0
    (folder / "model.safetensors").write_text("changed")
    assert subprocess.run(command, env=verify, capture_output=True).returncode != 0


OTHERS = {
    "sglang": {"engine": "sglang", "auth": {"api_key_secret": "k:v"}, "parallel": {"tensor": 2}, "resources": {"gpus_per_node": 2}, "offline": False},
    "sglang over nodes": {"engine": "sglang", "auth": {"api_key_secret": "k:v"}, "parallel": {"tensor": 4, "nodes": 2}, "resources": {"gpus_per_node": 2}},
    "llama.cpp on intel": {"engine": "llama-cpp", "resources": {"gpus_per_node": 1, "gpu": "intel", "shm_gib": 0}, "user": "rootless"},
    "llama.cpp on cores": {"engine": "llama-cpp", "resources": {"gpus_per_node": 0}, "scale": {"min": 2, "max": 3, "metric": "cpu", "target": 70}},
    "selinux, renewed": {"hpc": {"selinux": True, "renew": True, "partition": "p", "account": "a"}, "image_pull_secret": "login"},
    "no container": {"hpc": {"runtime": "host"}, "env": {"A": "b c"}},
    "awkward values": {"env": {f"X{i}": value for i, value in enumerate(AWKWARD)}},
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OTHERS)
def test_other_engines_and_settings_on_every_target(name, target):
    service = make(**OTHERS[name])
    files = service.render(target)
    assert [f.setting for f in read_back(service, files, target) if not f.held] == []
    text = "\n".join(files.values())
    if name == "sglang over nodes":
        flat = re.sub(r"[\\\s]+", " ", text)
        assert re.search(r"--nnodes 2 --node-rank .{0,3}\$+NODE_RANK.{0,3} --dist-init-addr .{0,3}\$+HEAD_ADDRESS:\$+HEAD_PORT", flat)
    if name == "sglang" and target == "kubernetes":
        command = engine_of(manifests(files, target).values())[0]["command"]
        assert "SGLANG_API_KEY" in command[command.index("-c") + 1]
    if name.startswith("sglang"):
        assert not re.search(r"--api-key[\"'\s\\]+\$", text), "a shell would put the key where every process list shows it"
    if name == "no container" and target in ("slurm-podman", "slurm-apptainer", "flux"):
        assert "podman" not in files["node.sh"].partition("set -e")[2]
        assert "apptainer" not in files["node.sh"].partition("set -e")[2]


@pytest.mark.slow
def test_other_engines_and_settings_pass_every_check():
    assert [fault for name in OTHERS for target in TARGETS for fault in faults(make(**OTHERS[name]), target)] == []


def test_parts_get_their_values_and_addresses(tmp_path):
    values = {f"X{i}": value for i, value in enumerate(AWKWARD) if not value.startswith("@")}
    env = {**values, "URL": "@url(s)/v1 and @url(ui)"}
    part = {"name": "ui", "image": "x:1", "port": 9, "command": ["the-ui", "two words"], "env": env}
    service = make(parts=[part], cache={"local": {"host_path": str(tmp_path)}})
    write(service, ["bare"], tmp_path / "out")
    at = tmp_path
    ui = f'#!/bin/bash\nenv -0 >{at}/env\nprintf %s "$1" >{at}/arg\nmkfifo {at}/wait 2>/dev/null\necho >{at}/wait\n'
    vllm = f"#!/bin/bash\nuntil [ -p {at}/wait ]; do :; done\ncat {at}/wait\n"
    env = stand_ins(at / "tools", **{"the-ui": ui, "vllm": vllm}) | {"HOME": str(at), "PORT": "8123"}
    subprocess.run(["bash", str(at / "out" / "bare" / "node.sh")], env=env, check=True, timeout=60)
    given = variables((at / "env").read_text())
    assert {name: given[name] for name in values} == values
    assert given["URL"] == "http://127.0.0.1:8123/v1 and http://127.0.0.1:9"
    assert (tmp_path / "arg").read_text() == "two words"
    composed = yaml.safe_load(service.render("compose")["compose.yaml"])["services"]["ui"]["environment"]["URL"]
    assert composed == "http://s:8000/v1 and http://ui:9"
    things = manifests(service.render("kubernetes"), "kubernetes").values()
    workload = next(t for t in things if t["metadata"]["name"] == "s-ui" and t["kind"] == "Deployment")
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    assert {e["name"]: e["value"] for e in container["env"]}["URL"] == "http://s:8000/v1 and http://s-ui:9"
    assert "@url" not in "".join(text for target in TARGETS for text in service.render(target).values())
