"""Fields of API objects with their paths, quantities, times and names; bounded JSON and YAML.

May import: dialects.api.
"""
