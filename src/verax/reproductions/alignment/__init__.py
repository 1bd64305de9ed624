"""Explanation Alignment: is a network right for the right reasons? Experiments, each a study of its own."""
