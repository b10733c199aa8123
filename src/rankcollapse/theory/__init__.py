"""Closed forms, one module per paper."""
