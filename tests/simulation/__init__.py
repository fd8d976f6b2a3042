"""Seeds of the simulator, and proof that its checkers see what is wrong."""
