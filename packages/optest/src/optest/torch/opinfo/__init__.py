"""Suites over PyTorch's own operator databases (``op_db`` and its siblings), for any driver of tensors.

A *group* is one entry of a database in one dtype and one phase; each of its samples is a
*case*. Groups run in worker processes (``optest.running``). There an entry's samples become
calls (``samples``, ``phases``), the driver answers the calls (``calls``), and the answers are
compared with eager PyTorch's (``verdict``, ``distribution``). Data files declare which entries
are not judged by value, and why (``classes``, ``data/*.toml``).

Importing this package does not import PyTorch.
"""
