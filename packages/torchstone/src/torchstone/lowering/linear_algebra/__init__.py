"""Factorizations of batches of matrices in plain StableHLO: loops over columns, never unrolled.

Every function takes and returns matrices as ``[batch, rows, columns]``, real or
complex. ATen's operators on top of them are in ``lowering.aten.linalg*``.
"""
