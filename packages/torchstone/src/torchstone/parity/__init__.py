"""Parity: the same operators and models in eager PyTorch and through Torchstone, compared."""
