"""The version of this package, for those who must not import all of it to say it."""

__version__ = "0.1.0"
"""The version of the installed package, as text."""
