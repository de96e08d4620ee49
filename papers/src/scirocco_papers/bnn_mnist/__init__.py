"""Bayesian neural network on MNIST: the log loss along six samplers."""
