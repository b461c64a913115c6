"""The rules of FlowMCP files: pure functions over plain JSON that yield what breaks a rule.

Every rule takes whatever the data is, of any type, and never raises. How bad a hit is, and what
to do about it, stands in `rule_table.py`.
"""
