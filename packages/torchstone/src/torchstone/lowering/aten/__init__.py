"""One module per operator family; each registers its lowerings when imported."""
