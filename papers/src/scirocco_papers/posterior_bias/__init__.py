"""Bias and efficiency of every sampler with every estimator, against NUTS on covertype."""
