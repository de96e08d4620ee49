"""Matrix factorisation of MovieLens 100k by SGLD, SGLD-CV and SAGA."""
