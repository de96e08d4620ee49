"""A Dirichlet-process mixture of web visits: SCIR, SCIR-CV, SGRLD and Gibbs."""
