"""Passes of users in ``torch.compile``: forward and backward, parts, strides, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

from torchstone import graph_pass
from torchstone.backend.records import recorded
from torchstone.compiler import Pass
from torchstone.errors import FallbackWarning

aten = torch.ops.aten
X = torch.linspace(-1, 1, 6).reshape(2, 3)


@graph_pass("cosines")
def cosines(module: GraphModule) -> GraphModule:
    """Turn sines into cosines."""
    for node in module.graph.find_nodes(op="call_function", target=aten.sin.default):
        node.target = aten.cos.default
    return module


@torch.library.custom_op("torchstone_passes::negated", mutates_args=())
def negated(x: torch.Tensor) -> torch.Tensor:
    """A custom operator without a lowering."""
    return -x


@negated.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def compiled(function: Callable[..., Any], *passes: Pass[Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(
        function, backend="torchstone", options={"fallback": False, "passes": passes, **options}
    )


def test_a_pass_sees_every_graph() -> None:
    """The derivative of the sine is a cosine, so the pass also changes a backward graph that has a sine."""
    x = X.clone().requires_grad_()
    with recorded() as records:
        compiled(lambda x: x.sin().sum(), cosines)(x).backward()
    torch.testing.assert_close(x.grad, X.cos())
    [forward, backward] = records
    assert forward.native["aten.cos.default"] >= 1
    assert "aten.sin.default" not in forward.native + backward.native
    expected = ["complete-metadata", "check-arguments", "extract-mutations", "split-outputs", "survey"]
    expected += ["require-lowerings", "cosines", "arrange-layouts", "add-checks", "lower"]
    for record in records:
        assert list(record.seconds) == expected
        assert sum(record.seconds.values()) < record.compile_s


def test_an_output_keeps_its_strides() -> None:
    @graph_pass("copied")
    def copied(module: GraphModule) -> GraphModule:
        output = module.graph.output_node()
        [result] = output.args[0]
        with module.graph.inserting_before(output):
            options = {"memory_format": torch.contiguous_format}
            copy = module.graph.call_function(aten.clone.default, (result,), options)
        output.args = ((copy,),)
        return module

    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    found = compiled(torch.sin, copied)(image)
    assert found.stride() == image.stride()
    torch.testing.assert_close(found, image.sin())


def test_parts_between_eager_operators_have_the_pass() -> None:
    with pytest.warns(FallbackWarning, match=r"torchstone_passes\.negated"), recorded() as records:
        found = compiled(lambda x: negated(x.sin()).sin(), cosines, fallback=True)(X)
    torch.testing.assert_close(found, (-X.cos()).cos())
    assert [record.native for record in records] == [{"aten.cos.default": 2}]


def test_any_batch_has_the_pass() -> None:
    torch._dynamo.reset()
    fast = torch.compile(torch.sin, backend="torchstone", dynamic=True, options={"passes": [cosines]})
    for size in (2, 3):
        x = torch.randn(size, 4)
        torch.testing.assert_close(fast(x), x.cos())


def test_errors_name_the_pass() -> None:
    @graph_pass("shrinking")
    def shrinking(module: GraphModule) -> GraphModule:
        output = module.graph.output_node()
        with module.graph.inserting_before(output):
            total = module.graph.call_function(aten.sum.default, (output.args[0][0],))
        output.args = ((total,),)
        return module

    with pytest.raises(Exception, match="the pass 'shrinking' changes output 0 from float32"):
        compiled(torch.sin, shrinking)(X)
    with pytest.raises(Exception, match="two passes of the pipeline are called 'cosines'"):
        compiled(torch.sin, cosines, cosines)(X)
    with pytest.raises(Exception, match="option passes=3 is not a list or tuple"):
        torch.compile(torch.sin, backend="torchstone", options={"passes": 3})(X)
