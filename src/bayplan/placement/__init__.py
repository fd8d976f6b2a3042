"""Where a gang can go: counting, choosing and filling domains with numpy. Pure and deterministic."""
