"""dualAFR against the slow reference, its alignment against C3D's sizes, its bound against enumeration."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from extractors.features import Features
from extractors.preprocessing.images import make_even_edges
from models.captioners.dual_afr.alignment import LayerConfig, build_alignment, find_aligned_edges
from models.captioners.dual_afr.config import C3D_LAYERS, DEMO_LAYERS, DualAFRConfig
from models.captioners.dual_afr.network import DualAFR, multi_sample_bound
from models.captioners.registry import find_captioner
from models.inputs import InputStream
from models.likelihood import teacher_force
from models.vocabulary import BOS, EOS, Vocabulary, pad_captions
from tests.models.forced import close, forced, never_reached, weights_of
from tests.models.tiny import WORDS, dual_afr_config, randomised, stream, tiny_dual_afr, videos
from tests.reference.dual_afr import Draw, DualAFRReference
from tests.reference.layers import Array
from training.optimization.losses import caption_loss

#: Like C3D's: each layer half as long and about half as wide as the one before, all aligned to 2 × 2.
PYRAMID = (
    LayerConfig(name="low", width=3, side=7, kernel=(5, 5), pool=(4, 4)),
    LayerConfig(name="middle", width=4, side=3, kernel=(3, 3), pool=(2, 2)),
    LayerConfig(name="last", width=5, side=2),
)
LENGTHS = ((7, 4, 2), (1, 1, 1), (12, 6, 3))
CAPTIONS = ([BOS, 4, 9, 4], [BOS, 12, 3, 7])


def pyramid_config(**changes: object) -> DualAFRConfig:
    top = InputStream(name="top", width=6)
    return dual_afr_config(layers=PYRAMID, top=top, channels=5, samples=2).model_copy(update=changes)


def pyramids() -> list[Features]:
    made: list[Features] = []
    for i, lengths in enumerate(LENGTHS):
        layers = zip(PYRAMID, lengths, strict=True)
        video = {c.name: stream(n, c.side**2, c.width, 60 + 5 * i + k) for k, (c, n) in enumerate(layers)}
        made.append({**video, "top": stream(2, 1, 6, 64 + 5 * i)})
    return made


def arrays(features: Features) -> tuple[list[Array], Array]:
    layers = [features[c.name].values.double().numpy() for c in PYRAMID]
    return layers, features["top"].values.double().mean((0, 1)).numpy()


def pyramid(config: DualAFRConfig, seed: int = 0) -> DualAFR:
    captioner = DualAFR(config, Vocabulary(WORDS))
    randomised(captioner, seed)
    return captioner.eval()


@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_every_step_agrees_with_the_reference(
    kind: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    captioner = pyramid(pyramid_config(kind=kind)).train(training)
    drawn: list[Tensor] = []
    draw = captioner.draw

    def remember(weights: Tensor) -> Tensor:
        drawn.append(draw(weights))
        return drawn[-1]

    monkeypatch.setattr(captioner, "draw", remember)
    torch.manual_seed(0)
    features = pyramids()
    with torch.no_grad():
        memory = captioner.encode(features)
        steps = forced(captioner, memory, CAPTIONS)
    assert memory.mask.sum(1).tolist() == [2, 1, 3]
    slow = DualAFRReference(weights_of(captioner), captioner.config)
    for row in range(6):
        chosen: list[Draw] | None = None
        if drawn:
            rows = [int(index[row]) for index in drawn]
            chosen = list(zip(rows[::2], rows[1::2], strict=True))
        expected = slow.caption(*arrays(features[row // 2]), CAPTIONS[row % 2], chosen)
        for (log_probs, attention), wanted in zip(steps, expected, strict=True):
            close(log_probs[row], wanted.log_probs)
            if wanted.temporal is None or wanted.spatial is None or wanted.layers is None:
                assert attention is None
                continue
            assert attention is not None
            assert attention.spatial is not None
            slots = len(wanted.temporal)
            close(attention.temporal[row, :slots], wanted.temporal)
            close(attention.spatial[row, :slots], wanted.spatial)
            close(attention.extras["layers"][row], wanted.layers)
            assert ("log_m" in attention.extras) == (wanted.log_m is not None)
            if wanted.log_m is not None:
                assert float(attention.extras["log_m"][row]) == pytest.approx(wanted.log_m, abs=1e-4)


def test_hard_training_draws_more_than_one_place_and_layer() -> None:
    captioner = pyramid(pyramid_config(kind="hard")).train()
    torch.manual_seed(0)
    weights = torch.tensor([[0.5, 0.3, 0.2]]).repeat(3000, 1)
    shares = torch.bincount(captioner.draw(weights), minlength=3) / 3000
    torch.testing.assert_close(shares, weights[0], atol=0.03, rtol=0)


@pytest.mark.parametrize("kind", ["convolution", "max", "average"])
def test_alignment_agrees_with_the_reference(kind: str) -> None:
    captioner = pyramid(pyramid_config(alignment=kind))
    slow = DualAFRReference(weights_of(captioner), captioner.config)
    with torch.no_grad():
        memory = captioner.encode(pyramids())
    for i, features in enumerate(pyramids()):
        layers, _ = arrays(features)
        slots = int(memory.mask[i].sum())
        wanted = np.concatenate([slow.aligned(k, a, slots) for k, a in enumerate(layers)], 2)
        close(memory.a[i, :slots], wanted)
        assert not memory.a[i, slots:].any()


@pytest.mark.parametrize("kind", ["convolution", "max", "average", "hypercolumn", "mlp"])
def test_padding_changes_nothing_however_layers_are_aligned(kind: str) -> None:
    captioner = pyramid(pyramid_config(alignment=kind))
    with torch.no_grad():
        together = forced(captioner, captioner.encode(pyramids()), CAPTIONS)
        for i, features in enumerate(pyramids()):
            alone = forced(captioner, captioner.encode([features]), CAPTIONS)
            for (ours, _), (own, _) in zip(together, alone, strict=True):
                torch.testing.assert_close(ours[2 * i : 2 * i + 2], own, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["average", "hypercolumn", "mlp"])
def test_what_is_equal_everywhere_stays_so(kind: str) -> None:
    """A layer that holds one vector gives its MLP's answer at every place (and the mlp's places alike)."""
    torch.manual_seed(0)
    align: Any = build_alignment(kind, PYRAMID[0], 5)  # type: ignore[arg-type]
    if kind == "mlp":
        torch.nn.init.constant_(align.places.weight, 1 / align.places.in_features)
        torch.nn.init.zeros_(align.places.bias)
    vector = torch.randn(3)
    aligned = align(vector.expand(2, 8, 49, 3))
    assert aligned.shape == (2, 2, 4, 5)
    torch.testing.assert_close(aligned, align.mlp(vector).expand(2, 2, 4, 5))


def test_maps_of_overlapping_windows_are_read_step_by_step() -> None:
    """Three windows that overlap by half, as C3D's: the first and the third follow each other."""
    captioner = pyramid(pyramid_config())
    as_rows, as_windows = pyramids()[0], dict(pyramids()[0])
    for layer, steps in zip(PYRAMID, (4, 2, 1), strict=True):
        rows = stream(2 * steps, layer.side**2, layer.width, 90 + steps)
        rows.start[:], rows.end[:] = (16 / steps * (np.arange(2 * steps) + more) for more in (0, 1))
        between = stream(1, steps * layer.side**2, layer.width, 80 + steps).values
        windows = stream(3, steps * layer.side**2, layer.width, 0)
        windows.values[::2] = rows.values.view(2, -1, layer.width)
        windows.values[1:2] = between
        windows.start[:], windows.end[:] = 8 * np.arange(3), 8 * np.arange(3) + 16
        as_rows, as_windows[layer.name] = {**as_rows, layer.name: rows}, windows
    found, wanted = (captioner.encode([features]) for features in (as_windows, as_rows))
    torch.testing.assert_close(found.a, wanted.a)
    torch.testing.assert_close(found.times, wanted.times)
    assert found.times[0].tolist() == [[0, 16], [16, 32]]


def test_c3d_layers_come_out_as_the_paper_says() -> None:
    """4 × 4 × N/16 × 512 from each, at a twentieth of the widths; N = 32 frames."""
    shapes = [(16, 784), (8, 196), (4, 49), (2, 16)]
    for layer, (rows, places) in zip(C3D_LAYERS, shapes, strict=True):
        thin = layer.model_copy(update={"width": 2})
        assert layer.side**2 == places
        assert build_alignment("convolution", thin, 3)(torch.randn(1, rows, places, 2)).shape == (1, 2, 16, 3)
    with torch.device("meta"):
        count = sum(
            p.numel() for c in C3D_LAYERS for p in build_alignment("convolution", c, 512).parameters()
        )
    assert 45e6 < count < 47e6
    assert {layer.aligned_side for layer in (*C3D_LAYERS, *DEMO_LAYERS)} == {4}


def test_cells_are_said_to_lie_where_pooling_put_them() -> None:
    """Seven cells padded by one and pooled by two: the first covers one of them, the others two."""
    uneven = pytest.approx((0, 1 / 7, 3 / 7, 5 / 7, 1))
    config: Any = find_captioner("dual_afr").make_demo_config()
    demo = DualAFR(config, Vocabulary(WORDS))
    assert demo.map_edges("grid", 4) == uneven
    assert find_aligned_edges("average", DEMO_LAYERS[-1]) == uneven
    # a_L of the paper is not pooled by us, but was by its network
    assert find_aligned_edges("convolution", C3D_LAYERS[-1]) == uneven
    # resized evenly, and from no place in particular
    assert (
        find_aligned_edges("hypercolumn", DEMO_LAYERS[-1])
        == find_aligned_edges("mlp", DEMO_LAYERS[-1])
        == make_even_edges(4)
    )


@pytest.mark.parametrize("lit", range(7))
def test_the_cell_that_a_change_of_the_picture_moves_lies_there(lit: int) -> None:
    """One of the network's seven rows changes; the aligned row whose edges hold it does, and no other."""
    layer = DEMO_LAYERS[-1].model_copy(update={"width": 3})
    align = build_alignment("convolution", layer, 5)
    quiet = torch.zeros(1, 1, 49, 3)
    loud = quiet.clone().view(1, 1, 7, 7, 3)
    loud[:, :, lit, 3] = torch.randn(3) * 100
    moved = (align(loud.view_as(quiet)) - align(quiet)).abs().sum(3).view(4, 4).sum(1)
    edges = find_aligned_edges("convolution", layer)
    (row,) = [row for row in range(4) if edges[row] <= (lit + 0.5) / 7 < edges[row + 1]]
    assert moved[row] > 0
    assert moved.count_nonzero() == 1


def test_the_surrogate_has_the_gradient_of_the_bound() -> None:
    """Three outcomes of one draw, K = 2: the mean over all pairs against finite differences of E[L²]."""

    def parts(theta: Tensor) -> tuple[Tensor, Tensor]:
        return theta[:3].log_softmax(0), torch.nn.functional.logsigmoid(theta[3:])

    def bound(theta: Tensor) -> Tensor:
        log_m, log_p = parts(theta)
        pairs = [(i, j) for i, j in product(range(3), repeat=2)]
        terms = [
            (log_m[i] + log_m[j]).exp() * (torch.stack([log_p[i], log_p[j]]).logsumexp(0) - np.log(2))
            for i, j in pairs
        ]
        return torch.stack(terms).sum()

    theta = torch.tensor([0.3, -0.8, 0.5, -1.0, 0.7, 0.2], dtype=torch.float64, requires_grad=True)
    log_m, log_p = parts(theta)
    i, j = (torch.tensor(index) for index in zip(*product(range(3), repeat=2), strict=True))
    drawn_m, drawn_p = torch.stack([log_m[i], log_m[j]], 1), torch.stack([log_p[i], log_p[j]], 1)
    found = multi_sample_bound(drawn_p, drawn_m)
    odds = drawn_m.sum(1).exp().detach()
    (odds * found.surrogate).sum().backward()
    assert float((odds * found.value).sum()) == pytest.approx(float(bound(theta.detach())))
    assert theta.grad is not None
    for k in range(6):
        step = torch.zeros(6, dtype=torch.float64)
        step[k] = 1e-5
        slope = (bound(theta.detach() + step) - bound(theta.detach() - step)) / 2e-5
        assert float(theta.grad[k]) == pytest.approx(-float(slope), abs=1e-8)


def test_more_samples_tighten_the_bound() -> None:
    captioner = pyramid(pyramid_config(kind="hard")).train()
    targets = pad_captions([[4, 5, 6], [7, 8]] * 3, 8)
    memory, means = captioner.encode(pyramids()), []
    for samples in (2, 20):
        captioner.config = pyramid_config(kind="hard", samples=samples)
        torch.manual_seed(0)
        with torch.no_grad():
            losses = [captioner.multi_sample_loss(memory, targets).bound for _ in range(30)]
        means.append(float(torch.stack(losses).mean()))
    assert means[1] < means[0]


def test_likelihood_of_captions_is_that_of_the_cross_entropy() -> None:
    captioner = pyramid(pyramid_config())
    targets = pad_captions([[4, 5, 6], [7, 8], [9]] * 3, 8)
    memory = captioner.encode(pyramids())
    found = teacher_force(captioner, memory, targets)
    wanted = caption_loss(captioner, memory, targets).cross_entropy
    torch.testing.assert_close(-found.log_p.sum() / found.valid.sum(), wanted)


def test_descending_the_bound_teaches_hard_attention_where_to_look() -> None:
    """One layer, two places: only the place tells which of two words is right."""
    config = dual_afr_config(
        layers=(LayerConfig(name="maps", width=4, side=2),),
        top=InputStream(name="top", width=2),
        channels=4,
        kind="hard",
        samples=10,
    )
    torch.manual_seed(0)
    captioner = DualAFR(config, Vocabulary(WORDS)).train()
    optimizer = torch.optim.Adam(captioner.parameters(), 2e-2)
    for step in range(80):
        features, targets = two_words(step)
        loss = captioner.multi_sample_loss(captioner.encode(features), targets).surrogate
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    features, targets = two_words(1000)
    with torch.no_grad():
        found = caption_loss(captioner.eval(), captioner.encode(features), targets).cross_entropy
    assert float(found) < 0.1  # ln 2 / 3 = 0.23 for one that cannot see


def two_words(seed: int) -> tuple[list[Features], Tensor]:
    """Of four cells one is marked by its third channel, and its first two say which word follows."""
    generator = torch.Generator().manual_seed(seed)
    features: list[Features] = []
    captions = []
    for _ in range(12):
        maps = stream(1, 4, 4, int(torch.randint(1 << 30, (), generator=generator)))
        place, word = torch.randint(4, (2,), generator=generator).tolist()
        maps.values[0, :, 2] = 0
        maps.values[0, place, 2] = 3
        maps.values[0, place, 0] = 2.0 if word % 2 else -2.0
        features.append({"maps": maps, "top": stream(1, 1, 2, 0)})
        captions.append([3, 4 + word % 2])
    return features, pad_captions(captions, 5)


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_gradient_reaches_every_parameter_within_ten_batches(kind: str) -> None:
    torch.manual_seed(0)
    config = pyramid_config(kind=kind, dropout=0.3, tie_words=True, weight_range=None)
    captioner = DualAFR(config, Vocabulary(WORDS)).train()

    def loss(batch: int) -> Tensor:
        captions = torch.randint(3, 20, (6, 4), generator=torch.Generator().manual_seed(batch)).tolist()
        memory, targets = captioner.encode(pyramids()), pad_captions(captions, 6)
        if kind == "hard":
            return captioner.multi_sample_loss(memory, targets).surrogate
        return caption_loss(captioner, memory, targets).cross_entropy

    assert never_reached(captioner, loss) == []


def test_initial_weights_are_the_papers() -> None:
    torch.manual_seed(0)
    captioner = DualAFR(dual_afr_config(weight_range=0.01, hidden=9), Vocabulary(WORDS))
    gate = captioner.decoder.weight_hh[:9]
    torch.testing.assert_close(gate @ gate.T, torch.eye(9))
    assert captioner.C.weight.abs().max() <= 0.01
    assert not captioner.decoder.bias_ih.any()


def test_the_first_word_reads_the_top_vector_alone() -> None:
    captioner = tiny_dual_afr()
    first, second = videos((3, 3))
    memory = captioner.encode([first, second])
    start = captioner.start(memory, 1)
    assert start.before_first
    torch.testing.assert_close(start.h, memory.h_1)
    log_probs, state, attention = captioner.step(start, torch.tensor([BOS, EOS]), memory)
    assert attention is None
    assert not state.before_first
    torch.testing.assert_close(log_probs, captioner.output(memory.h_1).log_softmax(1))


def test_paper_widths_and_one_optimiser_step() -> None:
    """MSR-VTT's 8,071 words, Adam at 2e-4, without pool2 and pool3, whose maps would take a minute."""
    torch.manual_seed(0)
    config = DualAFRConfig(layers=C3D_LAYERS[2:])
    captioner = DualAFR(config, Vocabulary([f"w{i}" for i in range(8068)])).train()
    optimizer = torch.optim.Adam(captioner.parameters(), lr=2e-4)
    video = {c.name: stream(2 if c.side == 7 else 1, c.side**2, c.width, c.side) for c in config.layers}
    video["c3d_fc7"] = stream(1, 1, 4096, 1)
    targets = pad_captions([[5, 6, 7], [8, 9]], 20)

    def loss() -> Tensor:
        torch.manual_seed(1)
        return caption_loss(captioner, captioner.encode([video]), targets).cross_entropy

    before = loss()
    assert float(before.detach()) == pytest.approx(np.log(8071), rel=0.1)
    before.backward()
    optimizer.step()
    assert loss() < before
