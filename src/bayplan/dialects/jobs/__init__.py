"""Job kinds, learnt once for every family: which pod sets a job object stands for."""
