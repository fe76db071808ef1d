"""Plans: which cases to run, from command line flags, YAML files and the built-in suite.

Flags and files become ``options.RunOptions``, which ``loader.load`` turns into cases.
``expectations`` are the gaps that a backend declares.
"""
