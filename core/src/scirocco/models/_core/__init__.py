"""What all models share: the driver of their chains, their files, their registry. It knows none of them."""
