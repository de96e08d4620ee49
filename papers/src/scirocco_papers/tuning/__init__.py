"""`step_size="auto"` against grid search, on ten posteriors."""
