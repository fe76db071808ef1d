"""Runs Torchstone, in a process of its own, under a future PyTorch that has changed operators.

It renames a parameter of ``aten.atan2``, adds one to ``aten.lerp.Scalar``, removes ``aten.cosh`` and a
private function, and adds two overloads. It prints what Torchstone finds as JSON.
"""

import json
import warnings

import torch

torch.__version__ = torch.torch_version.TorchVersion("2.99.0")
aten = torch.ops.aten


def declare(overload, before, after):
    overload._schema = torch._C.parse_schema(str(overload._schema).replace(before, after))


declare(aten.atan2.default, "other", "divisor")
declare(aten.lerp.Scalar, "Scalar weight", "Scalar weight, *, bool exact=False")
del torch._C._any_requires_grad
library = torch.library.Library("aten", "FRAGMENT")
library.define("anew(Tensor self) -> Tensor")
library.impl("anew", lambda x: x.clone(), "CompositeExplicitAutograd")
library.define("sin.precise(Tensor self, int digits) -> Tensor")

import torchstone  # noqa: E402
from torchstone.torch_internals import operators  # noqa: E402

# PyTorch's own code still needs the operator, so hide it only from Torchstone.
vars(operators.namespace("aten"))["cosh"] = operators.Packet("aten.cosh", None)
from torchstone.lowering import load  # noqa: E402
from torchstone.parity.installation import inspect_installation  # noqa: E402

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    registry = load()
    x = torch.rand(2, 3)

    def explained(model, *args):
        return str(torchstone.explain(model, args))

    found = {
        "count": len(registry),
        "unavailable": registry.unavailable,
        "works": torch.equal(torchstone.export(lambda x: x * 2 + x, (x,))(x), x * 2 + x),
        "renamed": explained(torch.atan2, x, x),
        "compiled": torch.allclose(
            torch.compile(torch.nn.GELU(), backend="torchstone")(x), torch.nn.GELU()(x), atol=1e-6
        ),
        "new": explained(torch.ops.aten.anew, x),
        "lacking": explained(torch.nn.LSTM(3, 4), x),
        "doctor": inspect_installation().to_dict(),
    }
found["warnings"] = [str(one.message) for one in caught if "tested versions" in str(one.message)]
print(json.dumps(found))
