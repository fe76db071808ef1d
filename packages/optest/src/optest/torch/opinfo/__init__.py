"""Suites over PyTorch's own operator databases (``op_db`` and its siblings), for any driver of tensors.

A *group* is one entry of a database in one dtype and one phase; each of its samples is a
*case*. Groups go to worker processes (``runner``); there an entry's samples become calls
(``samples``, ``phases``), the driver answers them (``calls``), and answers are judged
beside eager PyTorch's (``verdict``, ``distribution``). Which entries are judged in another
way than by value, and why, is data (``classes``, ``data/*.toml``).

Importing this package does not import PyTorch.
"""
