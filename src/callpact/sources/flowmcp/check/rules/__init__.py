"""The rules of FlowMCP files: pure functions over plain JSON that yield a `Hit` per breach.

Every rule accepts data of any type and never raises. `rule_table.py` has the severity and the remedy
of each.
"""
