"""Factorisations of batches of matrices in plain StableHLO: loops over columns, never unrolled.

Every function takes and returns matrices as ``[batch, rows, columns]``, real or
complex. What ATen's operators make of them is in ``lowering.aten.linalg*``.
"""
