"""The complete recipe: exploring a bent law."""
