"""What stands in for the rest of a cluster in memory: job controllers, kubelets, node lifecycle."""
