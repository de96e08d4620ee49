"""Logistic regression on covertype: SGLD, SGLD-CV, SAGA, and R's six samplers."""
