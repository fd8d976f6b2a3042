"""What an API server knows of resources and requests: decoding, metadata, selectors, paging.

May import: dialects.
"""
