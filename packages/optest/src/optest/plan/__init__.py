"""Plans: which cases to run, from command line flags, YAML files and the built-in suite.

``options.RunOptions`` is what both become, ``loader.load`` turns them into cases,
``expectations`` are the gaps that a backend declares.
"""
