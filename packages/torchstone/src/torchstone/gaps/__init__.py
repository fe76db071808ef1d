"""API gap analysis: PyTorch's public surface, what a provider offers of it, and the log of what is missing.

What was read (:mod:`.surface`), saved (:mod:`.snapshot`) and compared (:mod:`.compare`) is data; pages and
tables of it are written in :mod:`.render`. Nothing is imported here: each command loads what it needs.
"""
