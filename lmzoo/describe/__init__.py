"""Labels, equations and docstrings of the parts, as a person reads them."""
