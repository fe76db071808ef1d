"""PyTorch's decompositions and references: operators in terms of simpler ones."""

from __future__ import annotations

from .probing import Internal

decomposition_table = Internal("torch._decomp.decomposition_table", "decomposing operators")
logaddexp = Internal("torch._refs.logaddexp", "lowering logaddexp")
sinc = Internal("torch._refs.sinc", "lowering sinc")

inductor_prims = Internal("torch._inductor.inductor_prims", "lowering prims.fma")
"""A module that defines ``prims.fma``."""
quantized_decomposed = Internal("torch.ao.quantization.fx._decomposed", "quantization in exported graphs")
"""A module that defines and implements the operators of ``torch.ops.quantized_decomposed``."""
