"""`make bench-peers`: the same loads on Kueue and on Bayplan, each on a real control plane of its own."""
