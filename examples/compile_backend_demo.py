"""``torch.compile(backend="torchstone")`` on a matrix product and an activation, forward and backward.

Fallback is an error here, so everything that runs was compiled. Prints what each
graph was compiled to, and how far the results are from eager PyTorch's.
"""

from __future__ import annotations

import torch

from torchstone.backend.records import recorded


def layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x @ weight + bias)


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 128)
    weight = torch.randn(128, 32, requires_grad=True)
    bias = torch.randn(32, requires_grad=True)
    fast = torch.compile(layer, backend="torchstone", options={"fallback": False})

    with recorded() as graphs:
        actual = fast(x, weight, bias)
        actual_gradients = torch.autograd.grad(actual.square().mean(), (weight, bias))
    expected = layer(x, weight, bias)
    expected_gradients = torch.autograd.grad(expected.square().mean(), (weight, bias))

    for graph in graphs:
        operators = ", ".join(f"{name} {count}×" for name, count in graph.native.items())
        print(f"{graph.kind}: compiled {operators}")
    print(f"fallbacks: {sum(len(graph.fallbacks) for graph in graphs)}")

    names = ("output", "gradient of weight", "gradient of bias")
    pairs = zip((actual, *actual_gradients), (expected, *expected_gradients), strict=True)
    for name, (found, wanted) in zip(names, pairs, strict=True):
        torch.testing.assert_close(found, wanted)
        print(f"{name}: largest difference from eager {(found - wanted).abs().max():.2e}")


if __name__ == "__main__":
    main()
