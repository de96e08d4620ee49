"""Stochastic gradients compared with consensus, KDEMC and Weierstrass."""
