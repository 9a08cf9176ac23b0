"""The Triton kernels against plain PyTorch in double precision, with gradients.

Without a GPU, Triton's interpreter runs them on the CPU.
"""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from scommer.nn import layers, networks
from scommer.nn.sparse_coding import k_wta, threshold_rank

kernels = pytest.importorskip("scommer.gpu.kernels", reason="needs Triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CASES = {  # units, side of the map, parts, ratio, ReLU, residual, dropout mask
    "a hidden layer of a block": (16, 8, (3, 4), 0.5, True, False, False),
    "an odd number of units, one part": (20, 5, (4,), 0.8, True, True, True),
    "a dense block, three parts": (64, 4, (2, 2, 3), None, True, True, False),
    "a sum without activation": (8, 6, (3, 3), None, False, True, False),
    "a shortcut": (8, 6, (3, 3), None, False, False, False),
    "the end of a stage": (128, 4, (2, 2), 0.9, True, True, True),
    "all units win": (16, 4, (2, 2), 1.0, True, False, False),
    "a map of several tiles": (8, 17, (1, 2), 0.5, True, True, False),
    "a map of more tiles than programs": (8, 24, (1, 1), 0.5, True, False, True),
    "a wide stage": (256, 2, (2, 2), 0.8, True, True, True),
}


def reference(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor,
    parts: tuple[int, ...], ratio: float | None, relu: bool, residual: Tensor | None, keep: Tensor | None,
) -> Tensor:  # fmt: skip
    y = torch.cat([F.batch_norm(part, mean, var, weight, bias, True, 0.1, 1e-5) for part in x.split(parts)])
    y = y if residual is None else y + residual
    y = y if keep is None else y * keep[:, :, None, None]
    y = y if ratio is None else k_wta(y, ratio)
    return F.relu(y) if relu else y


@pytest.mark.parametrize(
    ("case", "offset"),
    [(case, 0.0) for case in CASES] + [("a hidden layer of a block", 30.0), ("a sum without activation", -30.0)],
)
def test_fused_norm_equals_plain_pytorch(case: str, offset: float) -> None:
    units, side, parts, ratio, relu, has_residual, has_keep = CASES[case]
    draw = torch.Generator().manual_seed(units)
    shape = (sum(parts), units, side, side)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    exact = {"x": random(*shape) * 2 + offset, "weight": random(units), "bias": random(units)}
    if has_residual:
        exact["residual"] = random(*shape)
    mask = (torch.rand(shape[:2], generator=draw) < 0.7).double() if has_keep else None
    mean, var = random(units), random(units).exp()
    gradients = random(*shape), random(*shape)

    leaves = {k: v.clone().requires_grad_() for k, v in exact.items()}
    m, v = mean.clone(), var.clone()
    expected = reference(
        leaves["x"], leaves["weight"], leaves["bias"], m, v, parts, ratio, relu, leaves.get("residual"), mask
    )
    wanted = torch.autograd.grad((expected * sum(gradients)).sum(), list(leaves.values()))

    def here(t: Tensor) -> Tensor:
        layout = torch.channels_last if t.dim() == 4 else torch.contiguous_format
        return t.float().to(DEVICE, memory_format=layout)

    given = {k: here(t).requires_grad_() for k, t in exact.items()}
    m32, v32 = here(mean), here(var)
    rank = 0 if ratio is None else threshold_rank(ratio, units)
    plan = kernels.NormPlan(parts, 1e-5, 0.1, relu, rank, return_fired=relu)
    y, skip, fired, pooled = kernels.fused_norm(
        given["x"], given["weight"], given["bias"], m32, v32, plan,
        given.get("residual"), None if mask is None else here(mask),
    )  # fmt: skip
    found = torch.autograd.grad(
        (y * here(gradients[0])).sum() + (skip * here(gradients[1])).sum(), list(given.values())
    )

    def near(a: Tensor, b: Tensor) -> float:
        return ((a.double().cpu() - b).norm() / b.norm()).item()

    assert near(y, expected.detach()) < 1e-4
    assert torch.equal(y, skip)
    assert near(m32, m) < 1e-5
    assert near(v32, v) < 1e-4
    for name, a, b in zip(given, found, wanted, strict=True):
        assert near(a, b) < 1e-3, name
    if relu:
        assert torch.equal(fired.cpu(), expected.sum((2, 3)) > 0)
        if pooled is not None:
            assert near(pooled, expected.mean((2, 3)).detach()) < 1e-4


def test_gradient_of_the_mean_over_the_map() -> None:
    units, parts = 24, (2, 3)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(5, units, 3, 3, generator=draw, dtype=torch.float64)
    residual, g, h = (torch.randn(s, generator=draw, dtype=torch.float64) for s in (x.shape, x.shape[:2], x.shape))
    one, zero = torch.ones(units, dtype=torch.float64), torch.zeros(units, dtype=torch.float64)
    for also_the_map in (False, True):
        a = x.clone().requires_grad_()
        y = reference(a, one, zero, zero.clone(), one.clone(), parts, 0.5, True, residual, None)
        loss = (y.mean((2, 3)) * g).sum() + (y * h).sum() * also_the_map
        (wanted,) = torch.autograd.grad(loss, a)
        b = x.float().to(DEVICE).requires_grad_()
        weight, bias, mean, var = (t.float().to(DEVICE) for t in (one, zero, zero, one))
        plan = kernels.NormPlan(parts, 1e-5, 0.1, True, threshold_rank(0.5, units), True)
        result = kernels.fused_norm(b, weight, bias, mean, var, plan, residual.float().to(DEVICE))
        loss = (result.pooled * g.float().to(DEVICE)).sum() + (result.x * h.float().to(DEVICE)).sum() * also_the_map
        (found,) = torch.autograd.grad(loss, b)
        assert (found.cpu() - wanted).norm() / wanted.norm() < 1e-4


def test_units_that_tie_at_the_threshold_all_lose() -> None:
    x = torch.tensor([3.0, 2.0, 2.0, 1.0, -4.0, 0.5, 0.25, 0.125], device=DEVICE)
    x = x[None, :, None, None] * torch.tensor([1.0, -1.0], device=DEVICE)[:, None, None, None]
    one, zero = torch.ones(8, device=DEVICE), torch.zeros(8, device=DEVICE)
    plan = kernels.NormPlan((2,), 1e-5, 0.1, True, 4, True)
    residual = x * 100 - x  # outweighs the normalised x, which is 0
    fired = kernels.fused_norm(x, zero, zero.clone(), one.clone(), one, plan, residual.contiguous()).fired
    assert fired.tolist() == [
        [True, False, False, False, False, False, False, False],
        [False, False, False, False, True, False, False, False],
    ]


def test_nan_propagates() -> None:
    x = torch.randn(4, 8, 3, 3, device=DEVICE)
    x[1, 2, 0, 0] = float("nan")
    one, zero = torch.ones(8, device=DEVICE), torch.zeros(8, device=DEVICE)
    plan = kernels.NormPlan((4,), 1e-5, 0.1, True, 0, True)
    y = kernels.fused_norm(x, one, zero, zero.clone(), one.clone(), plan).x
    assert y[:, 2].isnan().all()


@pytest.mark.parametrize("case", ["a hidden layer of a block", "the end of a stage", "a sum without activation"])
def test_fused_norm_eval_uses_the_running_statistics(case: str) -> None:
    units, side, parts, ratio, relu, has_residual, _ = CASES[case]
    draw = torch.Generator().manual_seed(units)
    shape = (sum(parts), units, side, side)
    x, residual = (torch.randn(shape, generator=draw).to(DEVICE, memory_format=torch.channels_last) for _ in "xr")
    weight, bias, mean = torch.randn(3, units, generator=draw).to(DEVICE)
    var = torch.rand(units, generator=draw).to(DEVICE) + 0.1
    y = F.batch_norm(x, mean, var, weight, bias, False, 0.1, 1e-5)
    y = y + residual if has_residual else y
    y = k_wta(y, ratio) if ratio else y
    y = F.relu(y) if relu else y
    before = mean.clone(), var.clone()
    plan = kernels.NormPlan((len(x),), 1e-5, 0.1, relu, threshold_rank(ratio, units) if ratio else 0, True)
    result = kernels.fused_norm_eval(x, weight, bias, mean, var, plan, residual if has_residual else None)
    torch.testing.assert_close(result.x, y, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result.pooled, y.mean((2, 3)), rtol=1e-4, atol=1e-5)
    if relu:
        assert torch.equal(result.fired, y.sum((2, 3)) > 0)
    assert torch.equal(mean, before[0])
    assert torch.equal(var, before[1])


def test_a_network_with_fused_norms_equals_the_plain_network(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for fused in (False, True):
        monkeypatch.setattr(layers, "has_kernels", lambda x, fused=fused: fused)
        draw = torch.Generator().manual_seed(0)
        network = networks.build("small", (3, 6, 6), 5, draw, width=4, active=0.75).to(DEVICE).train()
        x = torch.randn(5, 3, 6, 6, generator=draw).to(DEVICE, memory_format=torch.channels_last)
        keep = [None, (torch.rand(5, 8, generator=draw) < 0.8).float().to(DEVICE)]
        z, fired = network(x, keep, parts=(2, 3))
        gradients = torch.autograd.grad(z.square().sum(), list(network.parameters()))
        found.append([z, *(f.float() for f in fired), *gradients, *network.buffers()])
    for fused, plain in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("half", [None, torch.bfloat16])
def test_updates_equal_plain_pytorch(half: torch.dtype | None) -> None:
    theta, other = torch.randn(2, 5001, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    copy = None if half is None else theta.to(half)
    for weight in (0.0, 0.25):
        new = theta.clone()
        kernels.lerp(new, copy, other, torch.tensor(weight, device=DEVICE))
        torch.testing.assert_close(new, theta.lerp(other, weight))
        if copy is not None:
            torch.testing.assert_close(copy.float(), new, rtol=2**-7, atol=0)
    new = theta.clone()
    kernels.descend(new, copy, other, 0.1)
    torch.testing.assert_close(new, theta - 0.1 * other)
    if copy is not None:
        torch.testing.assert_close(copy.float(), new, rtol=2**-7, atol=0)


HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter cannot multiply bf16


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (HALF, 5e-3)])
@pytest.mark.parametrize(
    ("images", "inputs", "outputs", "side", "size", "stride"),
    [
        (3, 64, 64, 8, 3, 1),
        (2, 128, 64, 16, 3, 2),
        (5, 64, 128, 4, 3, 2),
        (3, 64, 128, 8, 1, 2),
        (1, 64, 64, 2, 5, 1),
        (2, 64, 64, 32, 1, 1),
        (2, 64, 64, 32, 3, 1),  # several boxes for each map
        (1, 64, 256, 8, 3, 1),  # several tiles of outputs
        (2, 256, 64, 4, 3, 1),  # several tiles of inputs
        (8, 64, 512, 16, 1, 1),  # many programs
        (5, 3, 64, 8, 3, 1),  # images
        (2, 1, 128, 16, 5, 1),
    ],
)
def test_convolutions_and_gradients_equal_plain_pytorch(
    images: int, inputs: int, outputs: int, side: int, size: int, stride: int, dtype: torch.dtype, tolerance: float
) -> None:
    draw = torch.Generator().manual_seed(inputs)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw).to(dtype).double().requires_grad_()

    x, w = random(images, inputs, side, side), random(outputs, inputs, size, size)
    y = F.conv2d(x, w, None, stride, size // 2)
    g = random(*y.shape)
    dx, dw = torch.autograd.grad((y * g).sum(), (x, w))

    def near(a: Tensor, b: Tensor) -> bool:
        return ((a.double().cpu() - b).norm() / b.norm()).item() < tolerance

    x, w, g = (t.detach().to(DEVICE, dtype, memory_format=torch.channels_last) for t in (x, w, g))
    step = (stride, stride)
    assert kernels.supports_conv(x, w, step, (size // 2, size // 2))
    assert near(kernels.conv(x, w, step), y)
    input_gradient = kernels.conv_input_gradient(g, w, step)
    assert near(input_gradient, dx) if inputs >= 64 else input_gradient is None
    out = torch.full((w.numel(),), 9.0, device=DEVICE)
    kernels.conv_weight_gradient(x, g, out, size, step)
    assert near(out.view(outputs, size, size, inputs).permute(0, 3, 1, 2), dw)


@pytest.mark.parametrize(
    ("x", "weight", "stride", "padding"),
    [
        ((0, 64, 8, 8), (64, 64, 3, 3), (1, 1), (1, 1)),  # no images
        ((2, 64, 8, 4), (64, 64, 3, 3), (1, 1), (1, 1)),  # not square
        ((2, 64, 12, 12), (64, 64, 3, 3), (1, 1), (1, 1)),  # not a power of two
        ((2, 64, 8, 8), (64, 64, 3, 3), (1, 1), (0, 0)),  # no padding
        ((2, 64, 9, 9), (64, 64, 3, 3), (2, 2), (1, 1)),  # stride 2 on an odd map
        ((2, 64, 8, 8), (48, 64, 3, 3), (1, 1), (1, 1)),  # outputs that do not fill a tile
        ((2, 32, 8, 8), (64, 32, 3, 3), (1, 1), (1, 1)),  # inputs that do not, and are no image
        ((2, 3, 8, 8), (64, 3, 3, 3), (2, 2), (1, 1)),  # stride 2 on an image
        ((1 << 14, 64, 64, 64), (64, 64, 3, 3), (1, 1), (1, 1)),  # more values than 32 bits can index
    ],
)
def test_other_convolutions_are_not_supported(
    x: tuple[int, ...], weight: tuple[int, ...], stride: tuple[int, int], padding: tuple[int, int]
) -> None:
    images, w = torch.zeros(1).expand(x), torch.zeros(weight)
    assert not kernels.supports_conv(images, w, stride, padding)
