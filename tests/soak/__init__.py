"""`make soak`: hours of mixed load on a real control plane, a fault every few minutes, judged by the API."""
