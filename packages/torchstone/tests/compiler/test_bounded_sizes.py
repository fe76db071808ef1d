"""Sizes that depend on values: programs return what eager PyTorch does, for every number of elements."""

from __future__ import annotations

import functools
import json
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.nn import functional as F

import torchstone
from torchstone.errors import (
    ArtifactError,
    CaptureError,
    InvalidValue,
    UnsupportedOperators,
    UnsupportedShape,
)
from torchstone.torch_internals import pytree

Tensor = torch.Tensor
X = torch.arange(12.0).view(3, 4)
FIRST = torch.tensor([True, False, False, False])
MASK = torch.tensor([True, False, True, True])
INPUTS = [
    (X, MASK),
    (X, torch.zeros(4, dtype=torch.bool)),
    (X, torch.ones(4, dtype=torch.bool)),
    (torch.full((3, 4), 5.0), MASK),
    (torch.zeros(3, 4), torch.tensor([False, False, True, False])),
    (torch.tensor([[4.0, -1, 9, 3.5], [7, 0, 0, 12], [3, 5, 5, -8]]), ~MASK | (X[2] > 9)),
]  # fmt: skip


def number(mask: Tensor) -> int:
    found: Any = mask.sum().item()
    torch._check(found >= 0)
    torch._check(found <= 4)
    return found


def repeated(x: Tensor, m: Tensor) -> Tensor:
    found = x[0].repeat_interleave(m.long() * 2)
    torch._check(found.shape[0] <= 8)
    return found


def counted(x: Tensor, m: Tensor) -> Tensor:
    found = (x[0].abs().long() % 5 + m.long()).bincount(minlength=3)
    torch._check(found.shape[0] <= 9)
    return found


def convolved_graph(x: Tensor, m: Tensor) -> Tensor:
    """A graph convolution with self-loops, over the edges that a mask keeps."""
    edges = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])[:, m]
    edges = torch.cat([edges, torch.arange(3).repeat(2, 1)], 1)
    degree = torch.zeros(3).scatter_add(0, edges[1], torch.ones(edges.shape[1]))
    weight = degree[edges[0]].rsqrt() * degree[edges[1]].rsqrt()
    return torch.zeros(3, 4).index_add(0, edges[1], x[edges[0]] * weight[:, None])


def experts(x: Tensor, m: Tensor) -> Tensor:
    """Compute the rows of each of two experts separately, and add the results at the rows' places."""
    chosen = (x.sum(1) > 20).long()
    result = torch.zeros_like(x)
    for expert in range(2):
        (rows,) = torch.where(chosen == expert)
        result = result.index_add(0, rows, F.gelu(x[rows] @ torch.full((4, 4), 0.1 + expert)))
    return result


MODELS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "mask": lambda x, m: x[x > 3],
    "mask of columns": lambda x, m: x[:, m],
    "mask of rows": lambda x, m: x[m[:3]],
    "mask twice": lambda x, m: x[x > 3][x[x > 3] < 8],
    "masked_select": lambda x, m: x.masked_select(m),
    "nonzero": lambda x, m: (x.nonzero(), x.nonzero().shape[0]),
    "where": lambda x, m: torch.where(x > 3),
    "argwhere": lambda x, m: torch.argwhere(x[:, m]),
    "unique": lambda x, m: (x % 3).unique(return_inverse=True, return_counts=True),
    "unique of a mask": lambda x, m: x[x > 3].unique(return_counts=True),
    "unique_consecutive": lambda x, m: torch.unique_consecutive(
        x // 4, return_inverse=True, return_counts=True
    ),
    "repeat_interleave": repeated,
    "bincount": counted,
    "number": lambda x, m: (x + m.sum().item(), m.sum().item()),
    "slice": lambda x, m: (x[:, : number(m)], x[:, number(m) :]),
    "row": lambda x, m: x.t()[number(m) - 4],
    "diagonal": lambda x, m: x.tril(number(m) - 2),
    "range": lambda x, m: (torch.arange(number(m)), torch.full((number(m), 2), 3.0)),
    "parts": lambda x, m: x.split([number(m), 4 - number(m)], 1),
    "sum": lambda x, m: x[x > 3].sum(),
    "mean": lambda x, m: (x[x > 3].mean(), x[:, m].mean(1)),
    "deviation": lambda x, m: (x[x > 3].std(), x[:, m].var(1, correction=0)),
    "product": lambda x, m: x[:, m].prod(1),
    "any": lambda x, m: ((x[:, m] > 5).any(1), (x[:, m] > 5).all(1)),
    "largest of rows": lambda x, m: x[m[:3]].amax(1),
    "softmax": lambda x, m: (x[:, m].softmax(1), x[:, m].log_softmax(0)),
    "cumsum": lambda x, m: x[x > 3].cumsum(0),
    "sort": lambda x, m: (x[x > 3].sort().values, x[x > 3].sort(descending=True, stable=True)),
    "matrix product": lambda x, m: (x[:, m] @ x[:, m].t(), x[:, m].t() @ x, x[:, m] @ x.t()[m]),
    "einsum": lambda x, m: torch.einsum("ij,kj->ik", x[:, m], x[:, m]),
    "linear": lambda x, m: F.linear(x[m[:3]], torch.ones(2, 4), torch.ones(2)),
    "layer norm": lambda x, m: F.layer_norm(x[m[:3]], (4,)),
    "convolution": lambda x, m: F.conv1d(x[m[:3]].unsqueeze(1), torch.ones(2, 1, 3)),
    "flatten": lambda x, m: (x[m[:3]].flatten(), x[m[:3]].view(-1, 2, 2), x[:, m].reshape(1, 3, 1, -1)),
    "joined": lambda x, m: (x[:, m].flatten(), x[:, m].reshape(-1, 3), x[:, m].unsqueeze(0).reshape(-1)),
    "end": lambda x, m: (x[:, m][:, -2:], x[-2:, m], x[x > 3][:-1], x[x > 3][:2], x[x > 3][::2]),
    "largest places": lambda x, m: x[m[:3]].argmax(1),
    "transpose": lambda x, m: x[:, m].t().unsqueeze(1).expand(-1, 2, -1),
    "elements": lambda x, m: x[x > 3] * 2 + x[x > 3].exp(),
    "size": lambda x, m: x[x > 3] * x[x > 3].shape[0] + x.nonzero().shape[0] / 2,
    "fraction": lambda x, m: (
        x * (x.nonzero().shape[0] / 7),
        m * (m.sum().item() / 3),
        x + m.sum().item() ** 2,
    ),
    "pad": lambda x, m: F.pad(x[x > 3], (1, 2), value=-5.0),
    "flip": lambda x, m: x[x > 3].flip(0),
    "cat": lambda x, m: torch.cat([x[x > 3], x[x < 2], x[0]]),
    "tail": lambda x, m: x[:, m][:, 1:],
    "embedding": lambda x, m: F.embedding(m.nonzero()[:, 0] % 3, x),
    "one_hot": lambda x, m: F.one_hot(m.nonzero()[:, 0], 4).sum(0),
    "index_select": lambda x, m: x.index_select(1, m.nonzero().squeeze(1)),
    "gather": lambda x, m: x.gather(1, m.nonzero().t() % 4),
    "scatter": lambda x, m: torch.zeros(1, 4).scatter(1, m.nonzero().t(), x[:1, m]),
    "write": lambda x, m: x.index_put((m[:3],), x[m[:3]] * 2),
    "write by places": lambda x, m: x.index_put(tuple(x.nonzero().t()), torch.tensor(1.0), accumulate=True),
    "write from the end": lambda x, m: x.index_put((m.nonzero()[:, 0] % 3 - 3,), torch.tensor(1.0)),
    "fill from the end": lambda x, m: x.index_fill(1, m.nonzero()[:, 0] - 4, 7.0),
    "slices": lambda x, m: (x.t() // 6).unique(dim=0, return_inverse=True, return_counts=True),
    "slices of columns": lambda x, m: ((x // 5).unique(dim=1), x[:, m].unique(dim=1, return_counts=True)),
    "consecutive slices": lambda x, m: torch.unique_consecutive(
        x.t()[m] // 6, dim=0, return_inverse=True, return_counts=True
    ),
    "median": lambda x, m: (x[x > 3].median(), x[x > 3].nanmedian(), torch.log(x - 4)[x > 3].nanmedian()),
    "norm": lambda x, m: (x[x > 3].norm(), x[:, m].norm(dim=1), x[:, m].norm(1, dim=0)),
    "searching": lambda x, m: (
        torch.searchsorted(x[x > 3].sort().values, x, right=True),
        torch.bucketize(x[x > 3], torch.tensor([2.0, 5.0, 8.0])),
    ),
    "spread": lambda x, m: (*torch.var_mean(x[:, m], 1, correction=0), *torch.std_mean(x[:, m], 0)),
    "smallest and largest": lambda x, m: tuple(x[:, m].aminmax(dim=0)),
    "attention": lambda x, m: (
        F.scaled_dot_product_attention(x.t()[None], x.t()[m][None], x.t()[m][None]),
        F.scaled_dot_product_attention(x.t()[m][None], x.t()[m][None], x.t()[m][None], is_causal=True),
        F.scaled_dot_product_attention(x.t()[m][None], x.t()[None], x.t()[None]),
    ),
    "attention with a mask": lambda x, m: (
        F.scaled_dot_product_attention(x.t()[None], x.t()[m][None], x.t()[m][None], (x.t() @ x > 50)[:, m]),
        F.scaled_dot_product_attention(x.t()[None], x.t()[m][None], x.t()[m][None], (x.t() @ x)[:, m] / 99),
    ),
    "group norm": lambda x, m: F.group_norm(x[m[:3]], 2),
    "rms norm": lambda x, m: F.rms_norm(x[m[:3]], (4,)),
    "main diagonal": lambda x, m: x[:, m] @ x[:, m].t() + (x.t() @ x)[m][:, m].diagonal(1).sum(),
    "repeat": lambda x, m: (x[:, m].repeat(2, 3), x[x > 3].repeat(2)),
    "windows": lambda x, m: x[m[:3]].unfold(1, 2, 1),
    "distances": lambda x, m: (x[m[:3], None] - x).norm(dim=2),
    "losses": lambda x, m: [
        function((x[:, m] / 9).sigmoid(), (x[:, m] + 9) / 30, reduction=reduction)
        for function in (
            F.mse_loss,
            F.l1_loss,
            F.smooth_l1_loss,
            F.huber_loss,
            F.binary_cross_entropy,
            F.kl_div,
        )
        for reduction in ("mean", "sum", "none")
    ],
    "losses of classes": lambda x, m: [
        F.cross_entropy(x.t()[m], m.long()[m] + 1, reduction=reduction, label_smoothing=smoothing)
        for smoothing in (0.0, 0.2)
        for reduction in ("mean", "sum", "none")
    ],
    "margins": lambda x, m: (
        F.multi_margin_loss(x.t()[FIRST | m], m.long()[FIRST | m]),
        F.triplet_margin_loss(x.t()[m], x.t()[m] + 1, x.t()[m] * 2),
        F.cosine_embedding_loss(x.t()[m], x.t()[m] + 1, m.long()[m] * 2 - 1, reduction="sum"),
        F.margin_ranking_loss(x[:, m], x[:, m] + 1, x[:, m].sign()),
    ),
    "likelihood": lambda x, m: F.nll_loss(
        x.t()[m].log_softmax(1), m.long()[m], torch.tensor([1.0, 2.0, 3.0])
    ),
    "a float": lambda x, m: (
        x * x.mean().item() + x.amax().item() ** 2,
        torch.full((2,), x.amin().item()),
        x[x > x.mean().item()],
    ),
    "branches": lambda x, m: torch.cond(
        x[x > 3].sum() > 20, lambda a: a[a > 2].sum(), lambda a: a.amin(), (x,)
    ),
    "a loop": lambda x, m: torch.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, a + a.nonzero().sum()), (torch.tensor(0), x)
    )[1],
    "graph": convolved_graph,
    "experts": experts,
}


def agrees(found: Any, expected: Any) -> None:
    assert type(found) is type(expected) or isinstance(expected, tuple)
    pairs = (
        zip(pytree.tree_leaves(tuple(found)), pytree.tree_leaves(tuple(expected)), strict=True)
        if isinstance(expected, (tuple, list))
        else [(found, expected)]
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", MODELS)
def test_results_are_eagers(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    program = torchstone.export(model, (X, MASK))
    loaded = torchstone.load(program.save(tmp_path / "program.stone"))
    for given in INPUTS:
        expected = model(*given)
        agrees(program(*given), expected)
        agrees(loaded(*given), expected)


STEPS: list[Callable[[Tensor], Tensor]] = [
    lambda t: -t,
    lambda t: t + t.abs(),
    lambda t: (t > 1).float(),
    lambda t: t.transpose(0, -1),
    lambda t: t.unsqueeze(0),
    lambda t: t.flatten(),
    lambda t: t.reshape(-1, t.shape[0]),
    lambda t: t.sum(0),
    lambda t: t.mean(-1, keepdim=True),
    lambda t: t.var(-1, correction=0),
    lambda t: t.prod(0),
    lambda t: (t > 0).any(-1).float(),
    lambda t: t.cumsum(-1),
    lambda t: t.sort(-1).values,
    lambda t: t.sort(0, descending=True).values,
    lambda t: t.softmax(-1),
    lambda t: t.flip(-1),
    lambda t: t[..., 1:],
    lambda t: t[..., -2:],
    lambda t: t[..., ::2],
    lambda t: torch.cat([t, t * 2], 0),
    lambda t: torch.stack([t, t + 1], -1),
    lambda t: F.pad(t, (1, 1), value=2.0),
    lambda t: t @ t.transpose(-1, -2) if t.ndim > 1 else t,
    lambda t: t.flatten()[:, None] * t.flatten(),
    lambda t: t[t > 0],
    lambda t: t.nonzero().float(),
    lambda t: t.unique(),
    lambda t: t * t.shape[0],
    lambda t: torch.zeros(5).index_add(0, t.flatten().abs().long() % 5, t.flatten()),
    lambda t: t.gather(-1, torch.zeros_like(t, dtype=torch.long)),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(60))
def test_steps_in_any_order(seed: int) -> None:
    """Apply one to five steps to a selection; if it exports, the program agrees with eager PyTorch."""
    choose = random.Random(seed)
    steps = [choose.choice(STEPS) for _ in range(choose.randint(1, 5))]
    select = choose.choice([MODELS["mask"], MODELS["mask of columns"], MODELS["mask of rows"]])

    def model(x: Tensor, m: Tensor) -> Tensor:
        return functools.reduce(lambda found, step: step(found), steps, select(x, m))

    try:
        program = torchstone.export(model, (X, MASK))
    except (CaptureError, UnsupportedOperators) as refused:
        pytest.skip(f"refused: {refused.message.splitlines()[-1]}")
    for given in INPUTS:
        try:
            expected = model(*given)
        except (IndexError, RuntimeError):
            continue
        agrees(program(*given), expected)


@pytest.mark.parametrize(
    "name",
    [
        "largest",
        "largest of columns",
        "topk",
        "last",
        "first",
        "kthvalue",
        "mode",
        "median",
        "extremes",
        "norm",
    ],
)
def test_what_has_no_elements_is_refused(name: str) -> None:
    model: Callable[[Tensor], Any] = {
        "largest": lambda x: x[x > 3].amax(),
        "largest of columns": lambda x: x[:, x[0] > 3].max(1),
        "topk": lambda x: x[x > 3].topk(1).values,
        "last": lambda x: x[x > 3][-1],
        "first": lambda x: x[x > 3][0],
        "kthvalue": lambda x: tuple(x[x > 3].kthvalue(2)),
        "mode": lambda x: tuple((x // 2)[x > 3].mode()),
        "median": lambda x: tuple(x[:, x[0] > 3].median(1)),
        "extremes": lambda x: tuple(x[x > 3].aminmax()),
        "norm": lambda x: x[x > 3].norm(-torch.inf),
    }[name]
    program = torchstone.export(model, (X,))
    given = X.flip(1) + 1
    agrees(program(given), model(given))
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.zeros(3, 4))
    with pytest.raises(InvalidValue, match=r"cannot take these values: aten.* at .*test_bounded_sizes\.py"):
        program(torch.zeros(3, 4))


def test_dynamic_sizes() -> None:
    """The bound is an expression of the sizes of inputs."""

    def model(x: Tensor) -> Any:
        rows = x[x.sum(1) > 0]
        ones = torch.ones(x.shape[0], 4).expand(2, -1, -1)
        return x[x > 0] * 2, x.nonzero().shape[0] + x.shape[0], rows * 2, ones * x, rows.sum(0) / x.shape[0]

    program = torchstone.export(model, (X,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    for rows in (2, 5, 3):
        given = torch.randn(rows, 4)
        agrees(program(given), model(given))


def test_what_is_left_of_a_dynamic_size() -> None:
    """A size that shrinks as the number grows is largest for the smallest number."""

    def model(x: Tensor, m: Tensor) -> Any:
        n = number(m)
        return x[n:], x[n:].sum(0), torch.cat([x[:n], x[n:]])

    rows = torch.export.Dim("rows", min=4)
    program = torchstone.export(model, (torch.ones(6, 2), MASK), dynamic_shapes=({0: rows}, None))
    for size, mask in ((6, MASK), (5, MASK & False), (9, MASK | True)):
        given = torch.randn(size, 2), mask
        agrees(program(*given), model(*given))


def test_numpy_arrays() -> None:
    program = torchstone.export(lambda x: x[x > 3], (X,))
    found = program(X.numpy())
    assert isinstance(found, numpy.ndarray)
    assert found.tolist() == X[X > 3].tolist()
    found[0] = 7  # the array has memory of its own


def test_a_bound_holds() -> None:
    """Every call checks the bound given by ``torch._check``, and memory is as large as the bound says."""

    def model(x: Tensor) -> Tensor:
        found = x[x > 3]
        torch._check(found.shape[0] <= 9)
        return found

    program = torchstone.export(model, (X,))
    assert program.signature.bounds == {"u0": 9}
    assert "-> (tensor<9xf32>" in program.mlir_text()
    agrees(program(X), model(X))
    with pytest.raises(InvalidValue, match=r"u0 <= 9, where u0 comes from aten\.index\.Tensor at .*\.py:\d+"):
        program(X + 4)


def test_a_program_for_a_mesh() -> None:
    mesh = torchstone.Mesh({"data": 1})
    program = torchstone.export(MODELS["nonzero"], (X, MASK), mesh=mesh, shardings={"args_0": "data"})
    agrees(program(X, MASK), MODELS["nonzero"](X, MASK))


def test_checks_alone_need_the_format(tmp_path: Path) -> None:
    """Readers of older formats would ignore the checks."""
    path = torchstone.export(lambda x: x[x > 3].amax(), (X,)).save(tmp_path / "program.stone")
    with zipfile.ZipFile(path) as archive:
        described = json.loads(archive.read("signature.json"))
    assert described["format_version"] == 6
    assert {one["kind"] for one in described["outputs"]} == {"output", "size_check"}


def test_a_dimension_of_too_many_sizes_is_damage(tmp_path: Path) -> None:
    """A reader would evaluate the length at both ends of each of its 40 sizes."""
    path = torchstone.export(MODELS["mask"], (X, MASK)).save(tmp_path / "program.stone")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    described = json.loads(members["signature.json"])
    names = [f"u{i}" for i in range(40)]
    (size,) = (one for one in described["outputs"] if one["kind"] == "size")
    described["outputs"][0]["shape"] = [" + ".join(names)]
    described["outputs"] += [{**size, "name": f"size_{name}", "target": name} for name in names[1:]]
    described |= {"symbols": {name: [0, None] for name in names}, "bounds": dict.fromkeys(names, 1)}
    members["signature.json"] = json.dumps(described).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ArtifactError, match=r"the dimension 'u0 \+ u1"):
        torchstone.load(path)


def test_buffers_follow() -> None:
    class Kept(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            chosen = x[x > 3]
            self.total += chosen.sum()
            return chosen

    program, model = torchstone.export(Kept(), (X,)), Kept()
    for given in (X, X * 0, -X, X + 1):
        agrees(program(given), model(given))
    torch.testing.assert_close(torch.from_numpy(program.state()["total"].copy()), model.total)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (lambda x: x[x > 3].histc(4), r"aten\.histc"),
        (lambda x: x[:, x[0] > 0].argmax(), "numbers elements that padding lies between"),
        (lambda x: x.repeat_interleave(x[0, :3].long(), 0), r"call torch\._check\(result\.shape\[0\] <= …\)"),
        (lambda x: torch.zeros(x.nonzero().shape[0] % 3), r"its size is Mod\(u0, 3\)|its size is PythonMod"),
        (lambda x: x[:, x[0] > 0].unique(dim=0), "slices whose size depends on values"),
        (lambda x: torch.ones(2, 65).unique(dim=0) + x[x > 3].sum(), "slices of more than 64 elements"),
        (lambda x: F.leaky_relu(x, x.sum().item()), "takes a number that depends on values"),
        (
            lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x[x > 3],)),
            "enter or leave its subgraphs",
        ),
        (
            lambda x: torch.cond(x.sum() > 0, lambda a: a[a > 3].amax(), lambda a: a.sum(), (x,)),
            "one of its subgraphs has to check a size: aten",
        ),
    ],
    ids=[
        "an operator",
        "numbers",
        "no bound",
        "a remainder",
        "slices",
        "wide",
        "a float",
        "branches",
        "checks",
    ],
)
def test_what_is_refused(model: Callable[[Tensor], Any], told: str) -> None:
    with pytest.raises(UnsupportedOperators, match=re.compile(told, re.DOTALL)) as caught:
        torchstone.export(model, (X,))
    assert "test_bounded_sizes.py" in str(caught.value)


def test_a_branch_on_a_size_is_named() -> None:
    with pytest.raises(
        CaptureError, match=r"only a call knows: .*u0.* at .*test_bounded_sizes\.py:\d+"
    ) as caught:
        torchstone.export(lambda x: x[x > 3] * 2 if x[x > 3].shape[0] % 3 == 1 else x, (X,))
    assert len(str(caught.value)) < 500


def test_what_answers_a_question_about_a_size_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    def model(x: Tensor) -> Tensor:
        chosen = x[x > 3]
        return chosen.logsumexp(0)

    with pytest.raises(CaptureError, match=r"torch\._check\(chosen\.shape\[0\] != 0\)"):
        torchstone.export(model, (X,))
    assert capfd.readouterr() == ("", "")  # PyTorch would print the graph that it had built so far

    def checked(x: Tensor) -> Tensor:
        chosen = x[x > 3]
        torch._check(chosen.shape[0] != 0)
        return chosen.logsumexp(0) + chosen.roll(1)

    program = torchstone.export(checked, (X,))
    for given in INPUTS[:4]:
        agrees(program(given[0]), checked(given[0]))
    with pytest.raises(InvalidValue, match=r"test_bounded_sizes\.py:\d+: .*u0"):
        program(torch.zeros(3, 4))


def test_a_float_of_a_tensor_is_not_returned() -> None:
    with pytest.raises(
        UnsupportedShape, match=r"(?s)returns a float that it reads from a tensor.*return the tensor"
    ):
        torchstone.export(lambda x: (x, x.sum().item()), (X,))


def test_a_decomposition_that_needs_a_size_is_one_sentence() -> None:
    def model(x: Tensor) -> Tensor:
        return F.cross_entropy(x.t()[x[0] > 3], x[1].long()[x[0] < 9])

    with pytest.raises(CaptureError, match=r"decomposes an operator only if it knows a size .*u0") as caught:
        torchstone.export(model, (X,))
    assert len(str(caught.value)) < 400
