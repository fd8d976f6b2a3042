"""Job kinds, described once for all dialects: the pod sets, the suspend flag and the status of each kind."""
