"""Reports of runs: figures, plots as SVG, one HTML page and JSON."""
