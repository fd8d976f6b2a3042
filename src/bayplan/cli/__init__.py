"""Commands for people; wires everything together."""
