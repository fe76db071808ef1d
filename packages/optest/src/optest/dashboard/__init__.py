"""The dashboard: shows recorded results as static (``site``) or live (``server``) pages, and takes results.

Pages load nothing from other servers. Not here: what counts as covered (``optest.coverage``).
"""
