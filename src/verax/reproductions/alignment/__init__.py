"""Explanation Alignment: is a network right for the right reasons? Five experiments, each a study of its own."""
