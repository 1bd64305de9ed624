"""Mamalakis, Ebert-Uphoff and Barnes, Environmental Data Science 2022: sea-surface temperature anomalies."""
