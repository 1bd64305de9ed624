"""What the paper says about alignment, and what can be said beyond it, decided by code."""
