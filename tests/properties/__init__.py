"""Properties of the engine, checked by hypothesis against an oracle that tries everything."""
