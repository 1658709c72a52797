"""Patches, series and pins, and applying them."""
