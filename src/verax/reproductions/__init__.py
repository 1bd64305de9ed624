"""Reproductions: a published study run again with one command, its figures drawn and its claims checked."""
