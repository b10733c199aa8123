"""What a user may set: one frozen dataclass per measurement, checked before any job starts.

No mathematics and no torch here: the workflow reads these modules at every start, and a measurement's rule
depends on the values (its ``params``), not on these files.
"""
