"""Frozen networks: images pass through them in batches, and the memory keeps what comes out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from real_rows import DX, DXT, DY, DYT
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from scommer import LifelongClassifier
from scommer.errors import UsageError
from scommer.lifelong.frozen import BATCH
from scommer.lifelong.state import _digest

BYTES, TEST_BYTES = ((x * 255).astype(np.uint8) for x in (DX, DXT))


def make_network(seed: int = 0, stride: int = 1, activation: nn.Module | None = None) -> nn.Module:
    """A small convolutional network with random weights and statistics of its own."""
    generator = torch.Generator().manual_seed(seed)
    first = [nn.Conv2d(1, 16, 3, stride), nn.BatchNorm2d(16), activation or nn.ReLU()]
    network = nn.Sequential(*first, nn.AdaptiveAvgPool2d(3), nn.Flatten())
    with torch.no_grad():
        for t in network.state_dict().values():
            if t.is_floating_point():
                t.copy_(torch.rand(t.shape, generator=generator) - (0.5 if t.dim() > 1 else 0.0))
    return network


@pytest.fixture
def network() -> nn.Module:
    return make_network()


@torch.no_grad()
def by_hand(network: nn.Module, images: Any) -> np.ndarray:
    network.eval()
    rows: Tensor = network(torch.from_numpy(images)[:, None].float() / 255)
    network.train()
    return rows.numpy()


@pytest.mark.parametrize("method", [None, "scommer"])
def test_images_are_learned_as_their_features(network: nn.Module, method: str | None) -> None:
    params: dict[str, Any] = {"method": method, "device": "cpu", "settings": {"epochs": 5} if method else None}
    rows, test_rows = by_hand(network, BYTES), by_hand(network, TEST_BYTES)
    plain = LifelongClassifier(**params)
    through = LifelongClassifier(**params, features=network)
    for classes in ([0, 1, 2, 3], [4, 5]):
        which = np.isin(DY, classes)
        plain.partial_fit(rows[which], DY[which])
        through.partial_fit(BYTES[which], DY[which])
    np.testing.assert_allclose(through.predict_proba(TEST_BYTES), plain.predict_proba(test_rows), atol=1e-4)
    known = DYT < 6
    assert through.score(TEST_BYTES[known], DYT[known]) > 0.7
    assert network.training  # left as it was
    if method:
        x, y = through.remembered_
        assert x.shape == (200, 16 * 9)  # rows, no images
        distances = np.abs(x[:, None] - rows[None]).max(2)
        assert distances.min(1).max() < 1e-4
        assert np.array_equal(y, DY[distances.argmin(1)])


def test_floats_images_of_pillow_and_functions(network: nn.Module) -> None:
    model = LifelongClassifier(device="cpu", features=network).fit(BYTES[:400], DY[:400])
    expected = model.predict_proba(TEST_BYTES[:9])
    pictures = [Image.fromarray(image) for image in TEST_BYTES[:9]]
    np.testing.assert_allclose(model.predict_proba(pictures), expected, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba((TEST_BYTES[:9] / 255).astype(np.float32)), expected, atol=1e-4)
    sizes: list[int] = []

    def count(words: list[str]) -> list[list[float]]:
        sizes.append(len(words))
        return [[word.count(letter) for letter in "aeiou"] for word in words]

    words = ["banana", "papaya", "beet", "leek"] * 40
    learned = LifelongClassifier(device="cpu", features=count).fit(words, ["fruit", "fruit", "root", "root"] * 40)
    assert sizes == [BATCH, BATCH, 160 - 2 * BATCH]
    assert learned.predict(["mango and ananas", "seed"]).tolist() == ["fruit", "root"]


def test_networks_from_files(network: nn.Module, tmp_path: Path) -> None:
    """A network may come from safetensors, TorchScript or torch.export; the same weights are needed to go on."""
    save_file(network.state_dict(), tmp_path / "network.safetensors")
    model = LifelongClassifier(device="cpu", features=network).fit(BYTES[:400], DY[:400])
    model.save(tmp_path / "model.safetensors")
    expected = model.predict_proba(TEST_BYTES)

    again = make_network(seed=1)
    with pytest.raises(UsageError, match="has different weights from the network that this classifier learned with"):
        LifelongClassifier.load(tmp_path / "model.safetensors", features=again).predict(TEST_BYTES)
    again.load_state_dict(load_file(tmp_path / "network.safetensors"))
    loaded = LifelongClassifier.load(tmp_path / "model.safetensors", features=again, device="cpu")
    assert np.array_equal(loaded.predict_proba(TEST_BYTES), expected)
    loaded.partial_fit(BYTES[400:600], DY[400:600])

    example = torch.rand(2, 1, 8, 8)
    exported = torch.export.export(network.eval(), (example,), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.export.save(exported, tmp_path / "network.pt2")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        torch.jit.trace(network, example).save(tmp_path / "network.pt")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        script = torch.jit.load(tmp_path / "network.pt")
    for other in (script, torch.export.load(tmp_path / "network.pt2").module()):
        same = LifelongClassifier.load(tmp_path / "model.safetensors", features=other, device="cpu")
        np.testing.assert_allclose(same.predict_proba(TEST_BYTES), expected, atol=1e-5)


@pytest.mark.parametrize("other", [{"stride": 2}, {"activation": nn.Tanh()}, {"activation": nn.GELU()}], ids=str)
def test_the_same_weights_with_other_layers_are_refused(
    network: nn.Module, tmp_path: Path, other: dict[str, Any]
) -> None:
    LifelongClassifier(device="cpu", features=network).fit(BYTES[:400], DY[:400]).save(tmp_path / "model")
    same = LifelongClassifier.load(tmp_path / "model", features=make_network(), device="cpu")
    different = LifelongClassifier.load(tmp_path / "model", features=make_network(**other), device="cpu")
    assert same.score(TEST_BYTES, DYT) > 0.7
    for use in (
        lambda: different.predict(TEST_BYTES[:1]),
        lambda: different.partial_fit(BYTES[400:], DY[400:]),
        lambda: different.to_onnx(example=BYTES[0]),
    ):
        with pytest.raises(UsageError, match=r"has the weights .* but computes something else: give a network with"):
            use()
    assert len(different.history_) == 1
    different.fit(BYTES[:400], DY[:400])  # starts over with its own features
    assert different.score(TEST_BYTES, DYT) > 0.7


def test_a_network_is_asked_once(network: nn.Module, tmp_path: Path) -> None:
    sizes: list[int] = []
    network.register_forward_hook(lambda module, args, output: sizes.append(len(output)))
    model = LifelongClassifier(device="cpu", features=network).fit(BYTES[:60], DY[:60])
    assert sizes[0] == 60
    assert len(sizes) == 3  # two answers: they must agree
    model.save(tmp_path / "model")
    for again in (model, LifelongClassifier.load(tmp_path / "model", features=network, device="cpu")):
        sizes.clear()
        again.predict(TEST_BYTES[:7])
        again.predict(TEST_BYTES[:5])
        assert sizes == [7, 5]


class Fickle(nn.Module):
    """A network that drops units, whichever mode it is in."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x.flatten(1), 0.5, training=True)


class Fussy(nn.Module):
    """A network for batches of one size."""

    def forward(self, x: Tensor) -> Tensor:
        assert len(x) == BATCH
        return x.flatten(1)


@pytest.mark.parametrize("kind", [Fickle, Fussy])
def test_networks_without_an_answer_are_known_by_their_weights(kind: type[nn.Module], tmp_path: Path) -> None:
    LifelongClassifier(device="cpu", features=kind()).fit(BYTES[:BATCH], DY[:BATCH]).save(tmp_path / "model")
    for network in (kind(), nn.Flatten()):  # without weights, they are alike
        model = LifelongClassifier.load(tmp_path / "model", features=network, device="cpu")
        assert model.predict(TEST_BYTES[:BATCH]).shape == (BATCH,)
        model.partial_fit(BYTES[:BATCH], DY[:BATCH])


def test_a_network_that_cannot_be_asked_may_still_predict(tmp_path: Path) -> None:
    LifelongClassifier(device="cpu", features=nn.Flatten()).fit(BYTES[:400], DY[:400]).save(tmp_path / "model")
    model = LifelongClassifier.load(tmp_path / "model", features=Fussy(), device="cpu")
    assert model.score(TEST_BYTES[:BATCH], DYT[:BATCH]) > 0.7


def with_probe(path: Path, probe: Any) -> Path:
    """A copy of a file with another probe, or without one, as files were before."""
    tensors = load_file(path)
    about = json.loads(tensors["about"].numpy().tobytes())
    about.pop("probe")
    about |= {} if probe is None else {"probe": probe}
    tensors["about"] = torch.from_numpy(np.frombuffer(json.dumps(about).encode(), np.uint8).copy())
    changed = path.with_name("changed")
    save_file(tensors, changed, {"lifelong": _digest(tensors)})
    return changed


def test_files_from_before_there_were_probes(network: nn.Module, tmp_path: Path) -> None:
    model = LifelongClassifier(device="cpu", features=network).fit(BYTES[:400], DY[:400])
    model.save(tmp_path / "model")
    old = LifelongClassifier.load(with_probe(tmp_path / "model", None), features=make_network(), device="cpu")
    assert np.array_equal(old.predict_proba(TEST_BYTES), model.predict_proba(TEST_BYTES))
    old.partial_fit(BYTES[400:], DY[400:]).save(tmp_path / "again")
    again = LifelongClassifier.load(tmp_path / "again", features=network, device="cpu")
    assert np.array_equal(again.predict_proba(TEST_BYTES), old.predict_proba(TEST_BYTES))


@pytest.mark.parametrize(
    "probe",
    [
        7,
        {},
        {"shape": [1, 8, 8]},
        {"shape": [1, 8], "answer": [0.5]},
        {"shape": [1, 8, 0], "answer": [0.5]},
        {"shape": [1, 8, 8.5], "answer": [0.5]},
        {"shape": [1, 8, 8], "answer": []},
        {"shape": [1, 8, 8], "answer": ["high"]},
        {"shape": [1, 8, 8], "answer": [float("nan")]},
    ],
    ids=str,
)
def test_a_probe_that_no_network_gave(network: nn.Module, tmp_path: Path, probe: Any) -> None:
    LifelongClassifier(device="cpu", features=network).fit(BYTES[:60], DY[:60]).save(tmp_path / "model")
    with pytest.raises(UsageError, match="changed has invalid content"):
        LifelongClassifier.load(with_probe(tmp_path / "model", probe), features=network, device="cpu")


def test_what_does_not_fit_is_refused(network: nn.Module, tmp_path: Path) -> None:
    model = LifelongClassifier(device="cpu", features=network).fit(BYTES[:400], DY[:400])
    model.save(tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"give them, as in load\(path, features=net\)"):
        LifelongClassifier.load(tmp_path / "model.safetensors").predict(TEST_BYTES)
    plain = LifelongClassifier(device="cpu").fit(by_hand(network, BYTES[:400]), DY[:400])
    plain.features = network
    with pytest.raises(UsageError, match="learned without `features`"):
        plain.predict(TEST_BYTES)
    for wrong, message in (
        (lambda given: np.zeros(len(given)), r"returned shape \(64,\) for 64 inputs: return \[64, D\]"),
        (lambda given: np.zeros((1, 5)), r"returned shape \(1, 5\) for 64 inputs"),
    ):
        with pytest.raises(UsageError, match=message):
            LifelongClassifier(device="cpu", features=wrong).fit(BYTES[:400], DY[:400])
    with pytest.raises(UsageError, match="give at least one"):
        model.predict(BYTES[:0])
    with pytest.raises(UsageError, match="`features` does not take these inputs"):
        model.predict(np.zeros((3, 8, 8, 3), np.uint8))
    with pytest.raises(UsageError, match="`features` does not take an image like `example`"):
        model.to_onnx(example=np.zeros((8, 8, 3), np.uint8))


def test_images_of_pillow_of_several_sizes_and_modes() -> None:
    pictures = [Image.fromarray(image) for image in BYTES[:100]]
    model = LifelongClassifier(settings={"width": 4, "epochs": 1}, device="cpu")
    with pytest.raises(UsageError, match="images of 9 × 8 and of 8 × 8 pixels: give one size"):
        model.fit([*pictures, pictures[0].resize((9, 8))], [*DY[:100], 0])
    mixed = [picture.convert("RGB") if i % 2 else picture for i, picture in enumerate(pictures)]
    assert model.fit(mixed, DY[:100]).form_ == ("uint8", (3, 8, 8))
    assert model.fit(list(BYTES[:100]), DY[:100]).form_ == ("uint8", (1, 8, 8))
