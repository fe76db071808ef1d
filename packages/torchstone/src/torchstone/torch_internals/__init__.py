"""The room for PyTorch's private names: no other module of Torchstone uses one.

Each module here holds the names of one subject. Classes that everything needs are imported;
everything else is an :class:`~.probing.Internal`, which looks its name up when it is first used
and says which PyTorch lacks what, and which feature needs it. Changes to PyTorch's own tables go
through :mod:`.patches`. To see the private names that a module uses, read its imports from here.
"""
