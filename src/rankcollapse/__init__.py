"""Rank collapse in attention: the mathematics, measurements and verdicts behind the figure book."""

__version__ = "0.1.0"
