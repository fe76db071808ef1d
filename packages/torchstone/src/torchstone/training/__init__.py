"""Training: whole steps, forward to optimizer update, as one program on an engine."""

from .step import CompiledStep, compile_step

__all__ = ["CompiledStep", "compile_step"]
