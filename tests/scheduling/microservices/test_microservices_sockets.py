"""DDRM by itself: advice from windows and from Prometheus, patches for Kubernetes, and the Gymnasium environment."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.scheduling.microservices import Ddrm, Simulation, Window, built_in, drawn, recommendation, resize_patch, windows_of
from armillary.scheduling.microservices.readers.prometheus import series_of
from armillary.scheduling.microservices.sockets.kubernetes import json_patch, quantity

SHOP = built_in("shop-8")


def seen(seconds: int = 6, factor: float = 0.6) -> list[Window]:
    sim = Simulation(drawn(np.random.default_rng(0), SHOP, np.full(seconds, 150.0)), SHOP.quotas * factor)
    return [sim.step() for _ in range(seconds)]


def facts_of(window: Window) -> dict[str, Any]:
    """The window as someone would write it from their own monitoring."""
    return {
        "services": {
            name: {"used": window.used[s], "quota": window.quotas[s], "rate": window.rate[s], "queue": window.queue[s],
                   "occupancy": window.occupancy[s], "p50_s": window.p50_s[s], "p99_s": window.p99_s[s], "replicas": int(window.replicas[s])}
            for s, name in enumerate(SHOP.names)
        },
        "p50_slo": window.p50_slo, "p99_slo": window.p99_slo,
    }  # fmt: skip


def test_advice_is_the_same_for_a_window_and_for_its_numbers():
    one, two = Ddrm.load("shop-8"), Ddrm.load("shop-8")
    for window in seen():
        cores = one.decide(window)
        assert cores == two.decide(facts_of(window))
    assert list(cores) == list(SHOP.names)
    assert all(0.1 <= value <= 16 for value in cores.values())
    assert one.promise is not None
    assert 0 <= one.promise <= 1


def test_a_starved_application_is_given_more():
    advisor, windows = Ddrm.load("shop-8"), seen(factor=0.4)
    for window in windows:
        cores = advisor.decide(window)
    assert sum(cores.values()) > windows[-1].quotas.sum()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f["services"].pop("cart"), "found no service cart"),
        (lambda f: f["services"].update(other={}), "found the unknown service other"),
        (lambda f: f["services"]["cart"].pop("used"), "cart: used: found None"),
        (lambda f: f["services"]["cart"].update(rate=float("nan")), "cart: rate: found nan"),
        (lambda f: f["services"]["cart"].update(quota=0.0), "quota outside 0.1 to 16"),
        (lambda f: f["services"]["cart"].update(replicas=0), "no replica"),
        (lambda f: f.pop("p99_slo"), "p99_slo: found None"),
        (lambda f: f.update(services=3), "found no services"),
    ],
)
def test_a_window_that_lacks_something_is_refused(change, message):
    facts = facts_of(seen(2)[-1])
    change(facts)
    with pytest.raises(InputError) as raised:
        Ddrm.load("shop-8").decide(facts)
    assert message in str(raised.value)


def answer(values: dict[str, list[float]], label: str = "service") -> dict[str, Any]:
    """A range query's answer with one series per service."""
    result = [{"metric": {label: name}, "values": [[1000 + t, repr(float(v))] for t, v in enumerate(row)]} for name, row in values.items()]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def test_prometheus_gives_the_same_advice():
    windows = seen()
    names = ("used", "quota", "rate", "queue", "occupancy", "p50_s", "p99_s")
    columns = {"quota": "quotas"}
    queries = {
        key: series_of(json.loads(json.dumps(answer({
            name: [float(getattr(w, columns.get(key, key))[s]) for w in windows] for s, name in enumerate(SHOP.names)
        }))), key)
        for key in names
    }  # fmt: skip
    for key in ("p50_slo", "p99_slo"):
        queries[key] = series_of(answer({"": [getattr(w, key) for w in windows]}), key)
    made = windows_of(SHOP, queries)
    assert len(made) == len(windows)
    one, two = Ddrm.load("shop-8"), Ddrm.load("shop-8")
    for mine, theirs in zip(windows, made):
        assert one.decide(mine) == two.decide(theirs)
    del queries["rate"]
    with pytest.raises(InputError, match="no query rate"):
        windows_of(SHOP, queries)
    queries["rate"] = queries["used"][:3]
    with pytest.raises(InputError, match='service="cart"'):
        windows_of(SHOP, queries)


@pytest.mark.parametrize(("cores", "text"), [(1.5, "1500m"), (0.1, "100m"), (0.0001, "1m"), (2.00049, "2001m"), (16.0, "16000m")])
def test_cores_are_written_in_millicores(cores, text):
    assert quantity(cores) == text


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_cores_that_are_none_are_refused(bad):
    with pytest.raises(InputError):
        quantity(bad)


def test_the_clients_models_understand_the_patches():
    client = pytest.importorskip("kubernetes.client")
    cores = Ddrm.load("shop-8").decide(seen(2)[-1])
    api = client.ApiClient()
    for name, value in cores.items():
        patch = resize_patch(name, value)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-0"}, **patch}
        made = api.deserialize(json.dumps(pod), "V1Pod", "application/json")
        (container,) = made.spec.containers
        assert container.name == name
        assert container.resources.limits == container.resources.requests == {"cpu": quantity(value)}
        # What the model writes is what was given: no key was unknown to it.
        written = api.sanitize_for_serialization(made)
        assert written["spec"] == patch["spec"]
    operations = json_patch(0, 1.25)
    pod = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]}}
    for one in operations:
        *path, last = one["path"].split("/")[1:]
        place: Any = pod
        for key in path:
            place = place[int(key)] if isinstance(place, list) else place[key]
        assert one["op"] == "replace"
        assert last in place
        place[last] = one["value"]
    assert pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "1250m"


def test_the_recommendation_has_the_shape_of_a_vertical_pod_autoscaler():
    cores = {"cart": 1.5, "payment": 0.3}
    first, second = recommendation(cores, namespace="shop")
    assert first["apiVersion"] == "autoscaling.k8s.io/v1"
    assert first["kind"] == "VerticalPodAutoscaler"
    assert first["spec"]["targetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart"}
    assert first["spec"]["updatePolicy"] == {"updateMode": "Off"}
    (container,) = first["status"]["recommendation"]["containerRecommendations"]
    assert container["target"] == container["uncappedTarget"] == {"cpu": "1500m"}
    assert (container["lowerBound"], container["upperBound"]) == ({"cpu": "1200m"}, {"cpu": "1800m"})
    assert second["metadata"] == {"name": "payment", "namespace": "shop"}
    with pytest.raises(InputError, match="slack"):
        recommendation(cores, slack=1.5)
    with pytest.raises(InputError, match="container"):
        resize_patch("", 1.0)


def test_the_environment_keeps_gymnasiums_contract():
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    from armillary.learn import register_environments

    register_environments()
    env = gymnasium.make("armillary/Microservices-v0", episode=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(env.unwrapped, skip_render_check=True)
    first, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(first, again)
    assert first.shape == (8, 67)
    steps = [env.step(np.full(8, 2)) for _ in range(4)]
    assert [bool(step[3]) for step in steps] == [False, False, False, True], "an episode is cut, and never done"
    assert all(step[1] < 0 and not step[2] for step in steps)


@pytest.mark.slow
def test_stable_baselines_accepts_the_environment():
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    import gymnasium

    from armillary.scheduling.microservices.environment import make

    env = gymnasium.wrappers.FlattenObservation(make(episode=4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checker.check_env(env)


def test_the_reward_is_cost_violations_and_changes():
    from armillary.scheduling.microservices import Microservices

    env = Microservices(2, SHOP, Ddrm().predictor_parts(SHOP), episode=5)
    env.reset(np.array([1, 2], np.uint32))
    before = [sim.quotas.copy() for sim in env._sims]
    _, reward, done, cut, _ = env.step(np.array([[2] * 8, [4, *[2] * 7]]))
    for i, raised in enumerate((0, 1)):
        cost = float((env._sims[i].quotas * SHOP.replicas).sum() / (SHOP.quotas * SHOP.replicas).sum())
        assert reward[i] == pytest.approx(-cost - 4 * env.seen[i].window.violated - 0.02 * raised, abs=1e-5)
    assert env._sims[1].quotas[0] == pytest.approx(1.3 * before[1][0])
    assert not done.any()
    assert not cut.any()
