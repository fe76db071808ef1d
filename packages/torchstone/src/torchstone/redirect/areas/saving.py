"""``torch.autograd.graph``: what saved-tensor hooks see. Nothing is replaced here."""

from __future__ import annotations

from ..rows import Row

_SEEN = "hooks run inside the operator that saves: there, on the cpu target, every tensor is on the CPU"

ROWS = (
    Row(
        "torch.autograd.graph.saved_tensors_hooks", "modified", f"{_SEEN}; .cpu() makes no copy", differs=True
    ),
    Row("torch.autograd.graph.save_on_cpu", "modified", f"{_SEEN}, so that nothing moves", differs=True),
)
"""Names for ``explain`` and the gap log to report. The hooks compute the same results as on CUDA."""
