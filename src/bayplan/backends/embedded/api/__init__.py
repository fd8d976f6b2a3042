"""Resources and requests of an API server: decoding, metadata, selectors, paging.

May import: dialects.
"""
