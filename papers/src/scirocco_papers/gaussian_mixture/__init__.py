"""Six samplers on a mixture of two Gaussians."""
