"""NodeResourceTopology: the zones inside nodes, as their exporters report them."""
