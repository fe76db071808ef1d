"""API gap analysis: PyTorch's public surface, what a provider offers of it, and the log of what is missing.

:mod:`.surface` reads the public names, :mod:`.snapshot` saves them and :mod:`.compare` compares them; all
three return data, which :mod:`.render` writes as pages and tables. Nothing is imported here: each command
loads the modules it needs.
"""
