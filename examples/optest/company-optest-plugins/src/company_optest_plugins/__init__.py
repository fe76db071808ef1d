"""The company's drivers and operators for optest; the modules register on import."""
