"""Operators on whole tensors: reduction, matrices, shape, indexing, scans, complex numbers, FFT."""

from __future__ import annotations

from .call import Call, Operator, family

family(
    "reduction",
    {
        **{
            name: [f"torch.{name}(x)", f"torch.{name}(x, 1)", f"torch.{name}(x, 0, keepdim=True)"]
            for name in ("sum", "max", "min", "mean", "std", "var", "prod", "all", "any", "argmax", "argmin")
        },
        **{name: [f"torch.{name}(x, 1)", f"torch.{name}(x, 0)"] for name in ("softmax", "log_softmax")},
        "logsumexp": ["torch.logsumexp(x, 1)", "torch.logsumexp(x, (0, 1), keepdim=True)"],
        **{name: [f"torch.{name}(x, 1)"] for name in ("cumsum", "cumprod")},
    },
)
family(
    "matrix",
    {
        "matmul": ["torch.matmul(x, tall)", "cube @ tall", "x @ row"],
        "mm": ["torch.mm(x, tall)"],
        "bmm": ["torch.bmm(cube, cubes)"],
        "linear": ["F.linear(x, narrow, pair)", "nn.Linear(4, 3)(x)"],
        "mv": ["torch.mv(x, row)"],
        "dot": ["torch.dot(row, row)"],
        "outer": ["torch.outer(column, row)"],
        "addmm": ["torch.addmm(wide, x, tall)", "torch.addmm(pair, x, tall, beta=2, alpha=3)"],
        "baddbmm": ["torch.baddbmm(product, cube, cubes)"],
        "einsum": ["torch.einsum('bij,bjk->bik', cube, cubes)", "torch.einsum('ij,ij->i', x, y)"],
        "tensordot": ["torch.tensordot(cube, interleaved, 2)"],
        "inner": ["torch.inner(x, narrow)"],
    },
)
family(
    "shape",
    {
        "reshape": ["torch.reshape(cube, (4, 6))", "cube.reshape(-1)"],
        "view": ["cube.view(6, 4)"],
        "flatten": ["torch.flatten(cube, 1)"],
        "squeeze": ["torch.squeeze(single)", "torch.squeeze(single, 1)"],
        "unsqueeze": ["torch.unsqueeze(x, 1)"],
        "transpose": ["torch.transpose(cube, 0, 2)"],
        "permute": ["torch.permute(cube, (2, 0, 1))"],
        "movedim": ["torch.movedim(cube, 0, 2)"],
        "swapaxes": ["torch.swapaxes(cube, 0, 1)"],
        "expand": ["single.expand(3, 5, 4)"],
        "concatenate": ["torch.concatenate([x, narrow])", "torch.cat([x, y], 1)"],
        "stack": ["torch.stack([x, y], 1)"],
        "split": ["torch.split(cube, 2, 1)", "torch.split(cube, [1, 3], 2)"],
        "chunk": ["torch.chunk(cube, 2, 2)"],
        "unbind": ["torch.unbind(cube, 1)"],
        "flip": ["torch.flip(cube, (0, 2))"],
        "roll": ["torch.roll(cube, 2, 1)", "torch.roll(cube, (1, -1), (0, 2))"],
        "tile": ["torch.tile(x, (2, 1, 2))"],
        "narrow": ["torch.narrow(cube, 2, 1, 2)"],
        "repeat": ["x.repeat(2, 1, 2)"],
    },
)
family(
    "indexing",
    {
        "slice": ["x[1:, ::2]", "x[..., -3:-1]"],
        "index_select": ["torch.index_select(x, 0, index)"],
        "gather": ["torch.gather(x, 1, places)"],
        "scatter": ["torch.scatter(x, 0, rows, y)", "torch.scatter(x, 0, rows, 1)"],
        "masked_select": Operator(
            [
                Call(
                    "torch.masked_select(x, mask)",
                    ruled=True,
                    eager="F.pad(torch.masked_select(x, mask), (0, 4))",
                )
            ],
            {"selected": 12},
            "the size of the result depends on values: it is padded to torchstone.bounds(selected=...)",
        ),
        "index_copy": ["torch.index_copy(x, 0, index, narrow)"],
        "index_add": [
            "torch.index_add(x, 0, index, narrow)",
            "torch.index_add(x, 0, index, narrow, alpha=2)",
        ],
        "index_fill": ["torch.index_fill(x, 0, index, 1)"],
        "take": ["torch.take(x, positions)"],
        "put": ["x.put(positions, triple)", "x.put(positions, triple, accumulate=True)"],
    },
)
family(
    "scan",
    {
        **{
            f"torch.{name}": [f"torch.{name}(x, 1)", f"torch.{name}(cube, 0)"]
            for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
        },
        "torch.diff": ["torch.diff(x)", "torch.diff(x, n=2, dim=0)"],
    },
)
family(
    "complex",
    {
        "torch.complex(real, imag)": ["torch.complex(x, y)"],
        **{f"torch.{name}(x)": [f"torch.{name}(x)"] for name in ("real", "imag", "conj", "angle")},
        "torch.polar(abs, angle)": ["torch.polar(positive, y)"],
        "torch.view_as_real(x)": ["torch.view_as_real(x)"],
        "torch.view_as_complex(x)": ["torch.view_as_complex(interleaved)"],
    },
)


def _transform(name: str) -> list[str]:
    """Return calls of a transform: its default form, an odd size, another dimension and normalization."""
    call = f"torch.fft.{name}"
    if name.endswith("n"):
        return [f"{call}(cube)", f"{call}(cube, s=(3, 5), dim=(0, 2))", f"{call}(cube, norm='ortho')"]
    if name.endswith("2"):
        return [f"{call}(x)", f"{call}(cube, s=(3, 5))", f"{call}(x, norm='ortho')"]
    return [f"{call}(x)", f"{call}(x, n=5)", f"{call}(x, dim=0, norm='ortho')"]


_TRANSFORMS = (
    *("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2"),
    *("fftn", "ifftn", "rfftn", "irfftn"),
)
family(
    "fft",
    {
        **{f"torch.fft.{name}": _transform(name) for name in _TRANSFORMS},
        **{
            f"torch.fft.{name}": [f"torch.fft.{name}(x)", f"torch.fft.{name}(cube, dim=1)"]
            for name in ("fftshift", "ifftshift")
        },
        **{
            f"torch.fft.{name}": [
                f"torch.fft.{name}(8, dtype=dtype)",
                f"torch.fft.{name}(5, 0.5, dtype=dtype)",
            ]
            for name in ("fftfreq", "rfftfreq")
        },
    },
)
