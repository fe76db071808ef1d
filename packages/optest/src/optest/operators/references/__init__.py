"""Reference implementations by category, in a wider type than what they check.

They use NumPy (SciPy where NumPy has nothing) and aim at the plainest formula that
is right. ``reference_impls`` gathers them under their public names; the drivers'
own implementations must not import from here.
"""
