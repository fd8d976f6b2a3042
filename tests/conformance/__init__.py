"""Cases from outside, run against Bayplan: `python -m tests.conformance --cases DIR --only GLOB`.

To join in, put a module into this directory that defines `FILES`: a mapping from a pattern of
`family/file` without extension to `check(case) -> list[str]`, the differences (none: passed).
"""
