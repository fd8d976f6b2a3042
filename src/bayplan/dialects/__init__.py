"""How each API family says it: pure translation between API objects and the model."""
