"""How a method is chosen for a run that names none: what is measured, and what is decided from it."""
