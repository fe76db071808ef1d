"""The dashboard: recorded results as pages, static (``site``) or live (``server``), and publishing to it.

Everything that a page loads comes from here; nothing comes from elsewhere. Not here:
what counts as covered (``optest.coverage``).
"""
