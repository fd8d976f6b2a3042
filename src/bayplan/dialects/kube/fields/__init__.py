"""Reading fields of any object with their path, quantities, times and names.

May import: dialects.api.
"""
