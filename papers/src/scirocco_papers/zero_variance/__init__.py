"""Zero-variance control variates after SGLD-CV, on covertype."""
