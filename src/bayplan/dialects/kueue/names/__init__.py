"""Names of annotations, labels, gates and kinds of the Kueue API.

May import: dialects.api.
"""
