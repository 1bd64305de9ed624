"""SMERF: Kim, Plumb and Talwalkar, "Sanity Simulations for Saliency Methods", ICML 2022."""
