"""Traffic, dispatch, shuffles, the clock, the other techniques, files, and the real small model are tested here."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.catalogue import arena
from armillary.errors import InputError
from armillary.serving.experts import (
    ByScore,
    Eplb,
    ExFlow,
    ExpertPlacement,
    Ground,
    MoeTuner,
    Random,
    RoutingTrace,
    SemMoE,
    Vanilla,
    assign,
    balance,
    count_traffic,
    draw,
    read_counts,
    serve,
)
from armillary.serving.experts.eplb import pack, replicate
from armillary.serving.experts.exflow import kept
from armillary.serving.experts.moetuner import place_layer
from armillary.serving.experts.planning.placement import bucket_sizes
from armillary.serving.experts.routing.coactivation import coactivation
from armillary.serving.experts.simulation.evaluation import PCIE
from armillary.serving.experts.workload import model_of

SEED = 11


def small(requests=24, **more):
    how = {"experts": 64, "k": 6, "layers": 2, "affinity": 0.9, "vocabulary": 300, "prompt": 12, "output": 3}
    return draw(requests, **(how | more), rng=np.random.default_rng(SEED))



def test_a_token_is_sent_once_to_a_device():
    # Device 0 has experts 0 and 1, device 1 has 2 and 3. Token 0 on device 0 uses 2 and 3, which takes one message. Token 1 uses 0 and 2.
    placement = ExpertPlacement.index_order(1, 4, 2)
    found = count_traffic(placement, 0, np.array([[2, 3], [0, 2]], np.int16), np.array([0, 1]), np.array([0, 1]), 2)
    assert found.pairs.tolist() == [[[0, 1], [0, 0]], [[0, 0], [1, 0]]]
    assert found.rows.tolist() == [[[0, 0], [1, 1]], [[1, 0], [1, 0]]]
    assert (found.local, found.activations) == (1, 4)


def test_a_copy_at_home_serves_and_others_take_turns():
    placement = ExpertPlacement(np.array([[[0, 1], [0, 2], [3, 0]]], np.int16), 4)
    tokens = np.zeros((4, 1), np.int16)
    at_home = count_traffic(placement, 0, tokens, np.zeros(4, np.int64), np.array([0, 1, 2, 2]), 1)
    assert at_home.local == 4
    assert at_home.pairs.sum() == 0
    away = ExpertPlacement(np.array([[[1, 2], [0, 3], [0, 3]]], np.int16), 4)
    turns = count_traffic(away, 0, tokens, np.zeros(4, np.int64), np.zeros(4, np.int64), 1)
    assert turns.pairs[0, 0].tolist() == [0, 2, 2]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1, 2, 4]))
def test_traffic_is_what_sets_say(seed, devices):
    rng = np.random.default_rng(seed)
    placement = ExpertPlacement.of_devices(rng.permutation(8)[None] % devices, devices)
    chosen = np.array([rng.choice(8, 3, replace=False) for _ in range(20)], np.int16)
    chosen[rng.random(chosen.shape) < 0.1] = -1
    step, source = rng.integers(0, 3, 20), rng.integers(0, devices, 20)
    found = count_traffic(placement, 0, chosen, step, source, 3)
    where = {int(e): d for d in range(devices) for e in placement.physical[0, d]}
    pairs, local = np.zeros((3, devices, devices), int), 0
    for i, row in enumerate(chosen):
        there = [where[int(e)] for e in row if e >= 0]
        local += there.count(source[i])
        for d in set(there) - {int(source[i])}:
            pairs[step[i], source[i], d] += 1
    assert np.array_equal(found.pairs, pairs)
    assert found.local == local
    assert found.rows.sum() == found.activations == (chosen >= 0).sum()



@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 50), st.integers(1, 5))
def test_shuffles_are_permutations_into_equal_parts(seed, tokens, devices):
    rng = np.random.default_rng(seed)
    score = rng.random((1, 10, devices)).astype(np.float16)
    score[0, :, 0] += 5 * (rng.random() < 0.5)  # everything wants one device: overflow
    placement = ExpertPlacement.index_order(1, devices, devices, token_score=score)
    ids = rng.integers(0, 12, tokens)  # two of them unknown
    order, inverse = placement.shuffle(ids, 0)
    assert np.array_equal(np.sort(order), np.arange(tokens))
    assert np.array_equal(order[inverse], np.arange(tokens))
    assert np.array_equal(ids[order][inverse], ids)


def test_a_shuffle_brings_tokens_to_their_experts():
    score = np.zeros((1, 4, 2), np.float16)
    score[0, [0, 1], 1] = 1
    score[0, [2, 3], 0] = 1
    placement = ExpertPlacement.index_order(1, 4, 2, token_score=score)
    order, _ = placement.shuffle([0, 2, 1, 3], 0)
    assert order.tolist() == [1, 3, 0, 2]
    with pytest.raises(InputError, match="layer"):
        placement.shuffle([0], 1)


def test_routing_asks_the_sum_of_scores():
    table = np.random.default_rng(SEED).random((20, 4)).astype(np.float32)
    placement = ExpertPlacement.index_order(3, 8, 4, request_score=table)
    ids = np.array([1, 5, 5, 19, 40])
    assert np.allclose(placement.scores(ids), table[ids[:4]].sum(axis=0) / (5 * 3))
    assert placement.route(ids) == int(np.argmax(table[ids[:4]].sum(axis=0)))
    assert ExpertPlacement.index_order(3, 8, 4).route([1, 2]) == 0


def test_requests_go_where_their_experts_are_until_a_device_is_full():
    table = np.zeros((4, 2), np.float32)
    table[:, 0] = 1.0
    placement = ExpertPlacement.index_order(1, 2, 2, request_score=table)
    router = ByScore(placement, batch=1000.0)
    picked = []
    for _ in range(200):
        picked.append(router.pick([0, 1], 10.0))
        assert router.load.max() - router.load.mean() <= 0.15 * 1000 + 10
    assert picked[:20] == [0] * 20
    assert router.load[0] > router.load[1]
    for device in picked:
        router.done(device, 10.0)
    assert not router.load.any()


def test_dispatch_is_within_the_limit_and_better_than_turns():
    seen, asked = small(512, layers=1).halves()
    found = SemMoE(devices=4).fit(seen)
    device = assign(asked, found, 64, by_score=True)
    for start in range(0, 256, 64):
        held = np.bincount(device[start : start + 64], minlength=4)
        assert held.max() <= 1.15 * 16 + 1
    turns = assign(asked, found, 64, by_score=False)
    assert np.bincount(turns, minlength=4).tolist() == [64] * 4

    def local(where):
        return count_traffic(found, 0, asked.chosen[0], np.zeros(len(asked), np.int64), where[asked.request], 1).local

    assert local(device) > 1.2 * local(turns)



def test_all_to_all_takes_the_busiest_port():
    ground = Ground.of("pcie", 2)
    sent = np.array([[0.0, 2 * PCIE], [0.0, 0.0]])
    assert float(ground.all_to_all(sent)) == pytest.approx(2.0, rel=1e-3)
    assert float(ground.all_to_all(np.zeros((2, 2)))) == 0.0
    ring = Ground(ground.device, ground.fabric, 3, pair_rate=1e9)
    assert float(ring.all_to_all(np.array([[0.0, 1e9, 1e9], [0, 0, 0], [0, 0, 0]]))) == pytest.approx(1.0, rel=1e-3)
    with pytest.raises(InputError, match="link"):
        Ground.of("pigeon", 2)


def test_bytes_and_times_by_hand():
    # Two devices with one expert each send everything, which is 4 tokens × 2048 × 2 bytes there and back in every layer.
    model = model_of("deepseek-v2-lite")
    tokens = np.arange(4, dtype=np.int32)
    chosen = np.array([[[1], [1], [0], [0]]], np.int16)
    trace = RoutingTrace(tokens, np.array([0, 1, 0, 1], np.int32), np.array([0, 0, 1, 1], np.int32), chosen, 2, np.array([2, 1], np.int32))
    placement = ExpertPlacement.index_order(1, 2, 2)
    ground = Ground.of("pcie", 2)
    found = serve(trace, placement, model, ground, wave=2)
    assert found.bytes_per_token == 2 * 4096
    assert found.local_rate == 0.0
    # The second request's last token is made in a second step; both requests get their first token in the first step.
    assert found.parts["dispatch"].shape == (1, 2)
    assert found.parts["dispatch"][0, 0] == pytest.approx(ground.fabric.all_reduce_s / 2 + 2 * 4096 / PCIE)
    assert found.parts["dispatch"][0, 1] == pytest.approx(ground.fabric.all_reduce_s / 2 + 4096 / PCIE)
    assert np.allclose(found.parts["combine"], found.parts["dispatch"])  # as much comes back
    assert found.ttft_s[0] == found.ttft_s[1] == found.latency_s[0] < found.latency_s[1] == pytest.approx(found.seconds)
    home = serve(trace, ExpertPlacement(placement.physical[:, ::-1].copy(), 2), model, ground, wave=2)
    assert home.local_rate == 1.0
    assert home.bytes_per_token == 0.0
    assert home.seconds < found.seconds


@pytest.mark.parametrize("attention", ["dp", "tp"])
def test_slower_links_take_longer_and_events_add_up(attention):
    trace, model = small(), model_of("deepseek-v2-lite")
    placement = Vanilla().place(trace, 4)
    links = ("nvlink", "pcie", "100gbe")
    fast, found, slow = (serve(trace, placement, model, Ground.of(link, 4), attention=attention, wave=8) for link in links)
    assert fast.seconds <= found.seconds <= slow.seconds
    events = found.perfetto(steps=1)
    assert sum(e["dur"] for e in events) == pytest.approx(1e6 * sum(float(p[:, 0].sum()) for p in found.parts.values()), rel=1e-3)
    assert (found.parts["scatter"].sum() > 0) == (attention == "tp")
    assert found.tokens == len(trace)


def test_shuffled_tokens_are_more_at_home_than_positions():
    seen, asked = small(200).halves()
    found, model = SemMoE(devices=4).fit(seen), model_of("deepseek-v2-lite")
    plain, shuffled = (serve(asked, found, model, Ground.of("pcie", 4), attention="tp", wave=16, by_score=s) for s in (False, True))
    assert plain.local_rate == pytest.approx(0.25, abs=0.03)
    assert shuffled.local_rate > plain.local_rate + 0.15
    assert shuffled.bytes_per_token < plain.bytes_per_token



def test_eplb_by_hand():
    assert pack(np.array([5.0, 4, 3, 2]), 2).tolist() == [0, 1, 1, 0]
    assert replicate(np.array([9.0, 2, 5]), 5).tolist() == [0, 1, 2, 0, 2]
    # Expert 0 has 90 tokens; with a copy on each device, both get 45 of them.
    found = balance([[90, 10, 10, 10, 10, 0]], 2, 4)
    assert all(0 in row for row in found.physical[0])
    with pytest.raises(InputError, match="room"):
        balance([[1, 1, 1]], 1, 2)


def test_eplb_keeps_groups_in_their_nodes():
    load = np.array([[8.0, 8, 1, 1, 4, 4, 5, 5]])
    found = balance(load, 4, 2, groups=4, nodes=2)
    for node in (found.physical[0, :2].ravel(), found.physical[0, 2:].ravel()):
        assert {int(e) // 2 for e in node} in ({0, 1}, {2, 3})


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31))
def test_eplb_is_as_even_as_its_greedy_promises(seed):
    rng = np.random.default_rng(seed)
    load = rng.zipf(1.5, (1, 16)).clip(max=10_000).astype(float)
    found = Eplb(extra=1).place_load(load, 4)
    copies = np.bincount(found.physical[0].ravel(), minlength=16)
    each = (load[0] / copies)[found.physical[0]].sum(axis=1)
    assert copies.min() >= 1
    assert each.max() <= each.mean() + (load[0] / copies).max() * 5


def test_inter_layer_placements_keep_more_tokens_on_a_device():
    trace = small(200, layers=3)
    together = coactivation(trace)
    assert together[0].sum() == len(trace) * 36

    def value(placement):
        device = np.argsort(placement.physical.reshape(3, -1), axis=1) // (64 // 4)
        return kept(together, device)

    usual = value(Vanilla().place(trace, 4))
    flow, tuner = ExFlow().place(trace, 4), MoeTuner().place(trace, 4)
    assert value(flow) > 1.3 * usual
    assert value(tuner) > usual
    assert value(flow) > value(ExFlow(sweeps=1).place(trace, 4))
    load = trace.expert_load()
    for layer in range(3):
        held = np.array([load[layer][row].sum() for row in tuner.physical[layer]])
        assert held.max() <= 1.1 * held.mean()
    assert np.array_equal(np.sort(Random().place(trace, 4).physical[0].ravel()), np.arange(64))


def test_the_integer_programme_weighs_load_against_tokens_that_stay():
    near = np.array([[2.0, 1], [2, 1], [1, 2], [1, 2]])
    even = place_layer(np.ones(4), near, 2, nodes=100, seconds=10)
    assert even.tolist() == [0, 0, 1, 1]
    apart = place_layer(np.array([8.0, 8, 1, 1]), near, 2, nodes=100, seconds=10)
    assert apart[0] != apart[1]



def test_traces_come_back_from_npz_and_parquet(tmp_path):
    import polars as pl

    trace = small(4)
    trace.write(tmp_path / "t.npz")
    back = RoutingTrace.read(tmp_path / "t.npz")
    assert np.array_equal(back.chosen, trace.chosen)
    assert np.array_equal(back.prompt, trace.prompt)
    rows = [
        {"token_id": int(trace.token_id[i]), "position": int(trace.position[i]), "request": int(trace.request[i]), "layer": layer,
         "experts": trace.chosen[layer, i].tolist()}
        for layer in range(trace.layers) for i in range(len(trace))
    ]  # fmt: skip
    pl.DataFrame(rows).write_parquet(tmp_path / "t.parquet")
    assert np.array_equal(RoutingTrace.read(tmp_path / "t.parquet", experts=64).chosen, trace.chosen)
    ragged = [*rows[:-1], rows[-1] | {"experts": [1]}]
    pl.DataFrame(ragged).write_parquet(tmp_path / "ragged.parquet")
    with pytest.raises(InputError, match="expected k in every row"):
        RoutingTrace.read(tmp_path / "ragged.parquet")
    with pytest.raises(InputError, match="expected 0 to 3"):
        RoutingTrace.read(tmp_path / "t.npz", experts=4)
    pl.DataFrame(rows[:-1]).write_parquet(tmp_path / "short.parquet")
    with pytest.raises(InputError, match="every token once"):
        RoutingTrace.read(tmp_path / "short.parquet")


def test_traces_that_are_wrong(tmp_path):
    with pytest.raises(InputError, match="layer 1 has no choice"):
        chosen = np.array([[[0]], [[-1]]], np.int16)
        RoutingTrace(*(np.zeros(1, np.int32) for _ in range(3)), chosen, 2, np.ones(1, np.int32))
    for name, content in (("a.parquet", b"PAR1"), ("a.pt", b"\x80")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError) as caught:
            RoutingTrace.read(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_numbers_in_files_are_checked_before_they_are_used(tmp_path):
    good = {"token_id": np.array([0, 1]), "position": np.array([0, 0]), "request": np.array([0, 1]), "chosen": np.zeros((1, 2, 1), int)}
    for change, said in (
        ({"token_id": np.array([0, 1 << 30])}, "token numbers"),
        ({"token_id": np.array([0, -1])}, "token numbers"),
        ({"experts": np.array(1 << 40)}, "experts"),
        ({"experts": np.array("two")}, "experts"),
        ({"prompt": np.array([1.5, 2.0])}, "prompt"),
        ({"request": np.array([0, 1 << 20])}, "request"),
        ({"chosen": np.zeros((1, 2, 1))}, "whole numbers"),
    ):
        np.savez(tmp_path / "bad.npz", **(good | change))
        with pytest.raises(InputError, match=said):
            RoutingTrace.read(tmp_path / "bad.npz")
    for rows in ([[0, 1 << 40]], [[0, -1]], [[0], [0, 1]], [], [["a"]]):
        with pytest.raises(InputError, match="physical_to_logical_map"):
            ExpertPlacement.from_map({"physical_to_logical_map": rows}, 1)


def test_counts_alone(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("layer,expert,count\n0,0,90\n0,1,10\n0,3,20\n1,2,5\n")
    assert read_counts(path).tolist() == [[90, 10, 0, 20], [0, 0, 5, 0]]
    assert Eplb().place_load(read_counts(path), 2).physical.shape == (2, 2, 3)
    for rows, said in (("0,0,-1\n", "from 0 to"), ("0,0,1\n0,0,1\n", "once"), ("1,0,1\n", "layer 0")):
        path.write_text(f"layer,expert,count\n{rows}")
        with pytest.raises(InputError, match=said):
            read_counts(path)


def test_maps_are_what_engines_read():
    placement = ExpertPlacement(np.array([[[0, 2], [1, 0]]], np.int16), 3)
    assert json.loads(placement.to_json()) == {"physical_to_logical_map": [[0, 2, 1, 0]]}
    assert np.array_equal(ExpertPlacement.from_map(placement.expert_map(), 2).physical, placement.physical)
    with pytest.raises(InputError, match="multiple of 3"):
        ExpertPlacement.from_map(placement.expert_map(), 3)
    with pytest.raises(InputError, match="no slot for expert 1"):
        ExpertPlacement(np.array([[[0, 2]]], np.int16), 3)



@pytest.fixture(scope="module")
def experts():
    return arena("serving/experts")


@pytest.mark.parametrize("name", ["mixtral-8x7b/pcie/dp", "deepseek-v2-lite/pcie/dp/no-affinity"])
def test_placing_sends_less_and_does_no_harm_without_affinity(experts, name):
    case = next(c for c in experts.built_in("tiny") if c.name == name).at(0, 0)
    ours, plain = (experts.execute(experts.make(technique), case) for technique in ("sem-moe", "vanilla"))
    assert {one.name for one in ours.artifacts} == {"latency.quantiles.json", "timeline.json", "placement.json"}
    if "no-affinity" in name:
        assert ours.values["token_throughput"] >= 0.97 * plain.values["token_throughput"]
    else:
        assert ours.values["alltoall_bytes"] < plain.values["alltoall_bytes"]


def test_own_routing(experts, tmp_path):
    path = tmp_path / "mine.npz"
    small(16).write(path)
    (case,) = experts.from_file(path, {"model": "deepseek-v2-lite", "link": "pcie", "devices": "4", "wave": "8"})
    assert experts.execute(experts.make("sem-moe"), case.at(0, 0)).values["token_throughput"] > 0
    for model, said in (("mixtral-8x7b", "expected 0 to 7"), ("qwen3-30b-a3b", "6 experts per token"), ("llama-3-8b", "no experts")):
        with pytest.raises(InputError, match=said):
            experts.from_file(path, {"model": model})



@pytest.fixture
def one_thread():
    """Uses one thread, because such small products gain nothing from more."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_the_real_mixture_gives_the_same_with_and_without_shuffling():
    torch = pytest.importorskip("torch")
    from armillary.serving.experts.routing import tiny_model

    model = tiny_model.trained(2, 1)
    trace = tiny_model.recorded(2, 12, 1)
    assert (trace.layers, trace.experts, trace.k) == (4, 8, 2)
    ids = torch.from_numpy(tiny_model.prose()[1][:24])
    logits, uneven = tiny_model.forward(model, ids[None])
    assert torch.allclose(logits[0], model.logits(ids), atol=1e-4)
    assert float(uneven) >= 0.9
    placement = SemMoE(devices=4).fit(trace)
    h = torch.randn((17, model.shape.hidden), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    model = type(model)(model.shape, {name: w.double() for name, w in model.weights.items()})
    for layer in range(4):
        order, inverse = placement.shuffle(trace.token_id[:17], layer)
        assert not np.array_equal(order, np.arange(17))
        plain, shuffled = _apart(model, placement, layer, h), _apart(model, placement, layer, h[order])[inverse]
        assert torch.equal(plain, shuffled)
        assert torch.allclose(plain, model._experts(layer, h), atol=1e-12)


def _apart(model, placement, layer, h):
    """Returns the experts' outputs if equal parts of the tokens are on the devices and every device computes the rows that come to it.

    Rows are computed one by one, so that a row's bits do not depend on the others, and summed in the order of the experts.
    """
    import torch
    from torch.nn import functional as fn

    at = f"model.layers.{layer}.block_sparse_moe."
    weights = {name: w for name, w in model.weights.items() if name.startswith(at)}
    parts = torch.split(h, bucket_sizes(len(h), placement.devices).tolist())
    sent = [[] for _ in range(placement.devices)]
    first, device, _ = placement.copies(layer)
    for d, part in enumerate(parts):
        for i, row in enumerate(part):
            share, chosen = torch.topk(torch.softmax(weights[f"{at}gate.weight"] @ row, -1), 2)
            for w, e in zip(share / share.sum(), chosen.tolist(), strict=True):
                sent[device[first[e]]].append((d, i, e, w, row))
    back = [[[] for _ in part] for part in parts]
    for d, inbox in enumerate(sent):
        for source, i, e, w, row in inbox:
            assert e in placement.physical[layer, d]
            w1, w2, w3 = (weights[f"{at}experts.{e}.{name}.weight"] for name in ("w1", "w2", "w3"))
            back[source][i].append((e, w * (w2 @ (fn.silu(w1 @ row) * (w3 @ row)))))
    rows = [sum(y for _, y in sorted(found, key=lambda one: one[0])) for part in back for found in part]
    return torch.stack(rows)


def test_parquet_that_promises_too_much_is_refused(tmp_path):
    """One list of fifty million equal numbers takes a few kilobytes in the file and hundreds of megabytes in memory."""
    pl = pytest.importorskip("polars")
    path = tmp_path / "bomb.parquet"
    many = pl.Series([5], dtype=pl.Int16).new_from_index(0, 50_000_000).implode()
    frame = {"token_id": [1], "position": [0], "request": [0], "layer": [0]}
    pl.DataFrame(frame).with_columns(many.alias("experts")).write_parquet(path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    with pytest.raises(InputError, match="unpack to"):
        RoutingTrace.read(path)
    pipe = tmp_path / "pipe.parquet"
    os.mkfifo(pipe)
    with pytest.raises(InputError):
        RoutingTrace.read(pipe)
