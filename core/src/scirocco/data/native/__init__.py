"""The native format: folders of `.npy` files with a header, for rows and for sparse corpora."""
