"""Runs cases: a single case from inputs to verdict, worker processes, the runner, its journal, shrinking.

Not here: what a case and a verdict are (``core``), which cases there are (``plan``,
``torch.opinfo``), and what becomes of results (``reporting``, ``ledger``).
"""
