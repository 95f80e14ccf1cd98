"""The networks against PyTorch's own modules, against naive recurrences, and against what sets and masks must not change."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from armillary.errors import InputError  # noqa: E402
from armillary.learn import (  # noqa: E402
    ActorCritic,
    Cnn2,
    Cnn3,
    CnnEncoder,
    CrossDeep,
    CrossDeepConfig,
    DualTower,
    Gru,
    GruDecay,
    Lstm,
    Mlp,
    MlpConfig,
    MLstm,
    SetTransformer,
    SLstm,
    TypedAttention,
)  # fmt: skip
from armillary.learn.attention import AttentionBlock  # noqa: E402
from armillary.learn.perceptron import Block  # noqa: E402
from armillary.learn.sets import Mab  # noqa: E402

BLOCKS = [
    Mlp(8, (64, 64), 5), Mlp(3, (), 2), CrossDeep(20), CrossDeep(6, rank=2, deep=()), Lstm(3, layers=2), Gru(3), GruDecay(3), SLstm(3), MLstm(3),
    DualTower(CrossDeepConfig(dim=5), MlpConfig(inputs=3, outputs=32)), DualTower(MlpConfig(inputs=3, outputs=4), interaction="cosine"),
    TypedAttention(8, types=4, pair_bias="types", readout="attention", head=(32,), outputs=1), TypedAttention(8, pair_bias="edges", edges=3),
    SetTransformer(5), SetTransformer(5, outputs=3), Cnn2(), Cnn3(), CnnEncoder(), ActorCritic(4, (2, 3)), ActorCritic(4, (3,), entities=True),
]  # fmt: skip


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def shaken(block: Block) -> Block:
    """The block with random weights in every tensor, biases and norms too."""
    rng = np.random.default_rng(1)
    block.load_arrays([(0.4 * rng.standard_normal(a.shape)).astype(np.float32) for a in block.state_arrays()])
    return block


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.config.kind)
def test_the_configuration_names_every_tensor_and_its_shape(block: Block) -> None:
    assert [(name, tuple(value.shape)) for name, value in block.state_dict().items()] == list(block.config.shapes().items())
    assert block.config.weights == sum(p.numel() for p in block.parameters())


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.config.kind)
def test_the_same_seed_gives_the_same_weights_and_draws_nothing_from_torch(block: Block) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one = type(block)(block.config, seed=7).state_arrays()
    torch.rand(5)
    two = type(block)(block.config, seed=7).state_arrays()
    other = type(block)(block.config, seed=8).state_arrays()
    assert all(np.array_equal(a, b) for a, b in zip(one, two))
    assert any(not np.array_equal(a, b) for a, b in zip(one, other))
    torch.set_rng_state(before)
    type(block)(block.config, seed=9)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_perceptron_is_its_layers() -> None:
    net, x = shaken(Mlp(4, (8, 6), 3, activation="tanh")), drawn(5, 4)
    w = dict(zip(net.config.shapes(), net.state_arrays()))
    h = np.tanh(np.tanh(x.numpy() @ w["encoder.0.weight"].T + w["encoder.0.bias"]) @ w["encoder.2.weight"].T + w["encoder.2.bias"])
    assert np.allclose(net(x).detach(), h @ w["head.weight"].T + w["head.bias"], atol=1e-5)
    assert net.features(x).shape == (5, 6)


def test_cross_layers_by_hand() -> None:
    net = CrossDeep(2, cross=2, deep=(), out=2)
    net.load_arrays([np.eye(2), np.zeros(2), np.eye(2), np.zeros(2), np.eye(2), np.zeros(2)])
    x = torch.tensor([[1.0, 2.0]])
    first = x * net.cross[0](x) + x
    assert first.tolist() == [[2.0, 6.0]]
    assert net.features(x).tolist() == [[4.0, 18.0]]
    assert net(x).tolist() == [[4.0, 18.0]]


def test_a_low_rank_cross_layer_is_its_product() -> None:
    low, full = shaken(CrossDeep(6, cross=1, deep=(4,), rank=2)), CrossDeep(6, cross=1, deep=(4,))
    w = dict(zip(low.config.shapes(), low.state_arrays()))
    w["cross.0.weight"] = w.pop("cross.0.u") @ w.pop("cross.0.v").T
    full.load_arrays([w[name] for name in full.config.shapes()])
    assert torch.allclose(low(drawn(3, 6)), full(drawn(3, 6)), atol=1e-5)


def test_an_attention_block_is_torchs_pre_norm_layer() -> None:
    ours = AttentionBlock(16, 4, 32)
    theirs = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    theirs.self_attn.in_proj_weight.data, theirs.self_attn.in_proj_bias.data = ours.qkv.weight.data, ours.qkv.bias.data
    for mine, name in ((ours.out, "self_attn.out_proj"), (ours.norm1, "norm1"), (ours.norm2, "norm2"), (ours.ffn1, "linear1"), (ours.ffn2, "linear2")):
        theirs.get_submodule(name).load_state_dict(mine.state_dict())
    x, real = drawn(3, 7, 16), torch.rand(3, 7, generator=torch.Generator().manual_seed(0)) < 0.7
    real[:, 0] = True
    bias = torch.zeros(3, 1, 1, 7).masked_fill(~real[:, None, None, :], -torch.inf)
    assert torch.allclose(ours(x, bias), theirs.train()(x, src_key_padding_mask=~real), atol=1e-6)


def test_a_multihead_attention_block_is_torchs_attention() -> None:
    ours, attention = Mab(8, 2), torch.nn.MultiheadAttention(8, 2, batch_first=True)
    attention.in_proj_weight.data = torch.cat([ours.q.weight, ours.kv.weight]).data
    attention.in_proj_bias.data = torch.cat([ours.q.bias, ours.kv.bias]).data
    attention.out_proj.load_state_dict(ours.out.state_dict())
    x, y, real = drawn(2, 3, 8), drawn(2, 5, 8, seed=1), torch.tensor([[True, True, False, True, False], [True] * 5])
    h = ours.norm1(ours.q(x) + attention(x, y, y, key_padding_mask=~real)[0])
    assert torch.allclose(ours(x, y, real), ours.norm2(h + torch.relu(ours.ffn(h))), atol=1e-6)


@pytest.mark.parametrize(("make", "module"), [(Lstm, "LSTM"), (Gru, "GRU")])
def test_recurrent_networks_are_torchs(make: type, module: str) -> None:
    ours = shaken(make(3, 8, 2, layers=2))
    theirs = getattr(torch.nn, module)(3, 8, 2, batch_first=True)
    theirs.load_state_dict(ours.encoder.state_dict())
    x = drawn(4, 6, 3)
    assert torch.allclose(ours.features(x), theirs(x)[0][:, -1], atol=1e-6)


def test_a_gru_without_decay_is_a_gru_and_decay_forgets() -> None:
    ours = shaken(GruDecay(3, 8, 1))
    with torch.no_grad():
        ours.decay_weight.fill_(1.0)
        ours.decay_bias.fill_(-1.0)
    cell = ours.encoder
    x, h = drawn(2, 4, 3), torch.zeros(2, 8)
    for t in range(4):
        h = cell(x[:, t], h)
    assert torch.allclose(ours.features(x, torch.full((2, 4), 0.5)), h, atol=1e-6), "gaps below 1 fade nothing"
    faded = ours.features(x, torch.full((2, 4), 100.0))
    assert torch.allclose(faded, cell(x[:, 3], torch.zeros(2, 8)), atol=1e-5), "after a long gap only the last step counts"


def test_the_slstm_is_its_naive_recurrence() -> None:
    net, x = shaken(SLstm(3, 8, 1, heads=2)).double(), drawn(2, 5, 3).double()
    h = c = n = torch.zeros(2, 8, dtype=torch.float64)
    for t in range(5):
        back = torch.cat([torch.cat([h[:, 4 * k : 4 * k + 4] @ net.recurrent[g, k].T for k in range(2)], 1) for g in range(4)], 1)
        z, i, f, o = (x[:, t] @ net.weight.T + net.bias + back).chunk(4, -1)
        c, n = torch.sigmoid(f) * c + i.exp() * torch.tanh(z), torch.sigmoid(f) * n + i.exp()
        h = torch.sigmoid(o) * c / n
    assert torch.allclose(net.features(x), h, atol=1e-10)


@pytest.mark.parametrize("forget", ["sigmoid", "exp"])
def test_the_mlstm_is_its_naive_recurrence_in_both_forms(forget: str) -> None:
    net, x = shaken(MLstm(3, 8, 1, heads=2, forget=forget)).double(), drawn(2, 6, 3).double()
    q, k, v, log_i, log_f, o = net._inputs(x)
    memory, n, states = torch.zeros(2, 2, 4, 4, dtype=torch.float64), torch.zeros(2, 2, 4, dtype=torch.float64), []
    for t in range(6):
        i, f = log_i[:, t].exp()[..., None], log_f[:, t].exp()[..., None]
        memory = f[..., None] * memory + i[..., None] * v[:, t, :, :, None] * k[:, t, :, None, :]
        n = f * n + i * k[:, t]
        under = (n * q[:, t]).sum(-1).abs().clamp(min=1.0)
        states.append(o[:, t] * ((memory @ q[:, t, ..., None])[..., 0] / under[..., None]).flatten(1))
    assert torch.allclose(net.parallel(x), torch.stack(states, 1), atol=1e-9)
    assert torch.allclose(net.features(x), states[-1], atol=1e-9)


def test_long_sequences_stay_finite() -> None:
    x = 30 * drawn(1, 200, 3)
    assert torch.isfinite(SLstm(3, forget="exp")(x)).all()
    assert torch.isfinite(MLstm(3, forget="exp")(x)).all()


@given(st.integers(0, 10_000), st.sampled_from(["token", "mean", "attention"]), st.sampled_from([None, "types", "edges"]))
@settings(max_examples=20)
def test_padding_and_order_change_no_attention(seed: int, readout: str, pair_bias: str | None) -> None:
    net = shaken(TypedAttention(4, 8, 2, 2, types=3, pair_bias=pair_bias, edges=2, readout=readout, outputs=2))
    rng = np.random.default_rng(seed)
    x, types, real = drawn(3, 6, 4, seed=seed), torch.from_numpy(rng.integers(0, 3, (3, 6))), torch.from_numpy(rng.random((3, 6)) < 0.6)
    edges = torch.from_numpy(rng.integers(-1, 2, (3, 6, 6)))
    real[:, 0] = True
    found = net(x, types, real, edges)
    filled = torch.where(real[..., None], x, torch.tensor(float("nan")))
    assert torch.allclose(net(filled, torch.where(real, types, 0), real, edges), found, atol=1e-6)
    order = torch.from_numpy(np.r_[0, 1 + rng.permutation(5)])
    mixed = net.tokens(x[:, order], types[:, order], real[:, order], edges[:, order][:, :, order])
    assert torch.allclose(mixed[:, 0], net.tokens(x, types, real, edges)[:, 0], atol=1e-5)
    assert torch.allclose(net(x[:, order], types[:, order], real[:, order], edges[:, order][:, :, order]), found, atol=1e-5)


@given(st.integers(0, 10_000))
@settings(max_examples=20)
def test_padding_and_order_change_no_set(seed: int) -> None:
    net, rng = shaken(SetTransformer(4, 8, 2, isab=2, inducing=3, seeds=2)), np.random.default_rng(seed)
    x, real = drawn(3, 6, 4, seed=seed), torch.from_numpy(rng.random((3, 6)) < 0.6)
    real[:, 0] = True
    found = net(x, real)
    order = torch.from_numpy(rng.permutation(6))
    assert torch.allclose(net(x[:, order], real[:, order]), found, atol=1e-5)
    assert torch.allclose(net(torch.where(real[..., None], x, torch.inf), real), found, atol=1e-6)
    longer = torch.cat([x, drawn(3, 4, 4, seed=seed + 1)], 1)
    assert torch.allclose(net(longer, torch.cat([real, torch.zeros(3, 4, dtype=torch.bool)], 1)), found, atol=1e-6)


def test_an_empty_set_is_a_learned_vector() -> None:
    net = shaken(SetTransformer(4, 8, 2))
    nothing = net(drawn(2, 3, 4), torch.zeros(2, 3, dtype=torch.bool))
    assert torch.equal(nothing, net.empty.expand(2, -1))
    assert torch.equal(net(torch.zeros(2, 0, 4)), nothing)
    attention = TypedAttention(4, 8, 2, readout="mean")
    assert torch.equal(attention(drawn(2, 3, 4), None, torch.zeros(2, 3, dtype=torch.bool)), torch.zeros(2, 8))


@pytest.mark.parametrize("interaction", ["bilinear", "dot", "cosine"])
def test_scores_of_all_pairs_are_those_of_the_pairs(interaction: str) -> None:
    net = shaken(DualTower(CrossDeepConfig(dim=5, out=8), MlpConfig(inputs=3, outputs=8), interaction=interaction))
    left, right = net.encode_left(drawn(7, 5)), net.encode_right(drawn(9, 3))
    whole = net.scores(left, right, block=4)
    for i in range(7):
        assert torch.allclose(whole[i], net.pair(left[i].expand(9, -1), right), atol=1e-4)
    assert torch.allclose(net(drawn(7, 5), drawn(7, 3)), net.pair(net.encode_left(drawn(7, 5)), net.encode_right(drawn(7, 3))))


def test_one_tower_knows_nothing_of_the_other() -> None:
    net = DualTower(MlpConfig(inputs=3, outputs=4))
    before = net.encode_left(drawn(2, 3))
    net.encode_right(100 * drawn(5, 3))
    assert torch.equal(net.encode_left(drawn(2, 3)), before)


def test_weights_travel_as_a_flat_list() -> None:
    one, other = Cnn2(seed=1), Cnn2(seed=2)
    other.load_arrays(one.state_arrays())
    assert torch.equal(one(drawn(2, 1, 28, 28)), other(drawn(2, 1, 28, 28)))
    with pytest.raises(InputError, match="expected the 6"):
        other.load_arrays(one.state_arrays()[:-1])
    with pytest.raises(InputError, match="expected"):
        other.load_arrays([*one.state_arrays()[:-1], np.zeros(3)])


@pytest.mark.parametrize("make", [lambda: TypedAttention(3, 10, 4), lambda: Cnn3(1, (4, 4)), lambda: SLstm(3, 9, heads=2), lambda: Mlp(0)])
def test_impossible_sizes_are_refused(make: object) -> None:
    with pytest.raises(ValueError):
        make()  # type: ignore[operator]
