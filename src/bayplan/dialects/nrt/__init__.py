"""NodeResourceTopology: the NUMA zones of nodes, as their exporters report them."""
