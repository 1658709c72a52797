"""The misapplication guard: did a carried patch land where it belongs? Texts in, concerns out."""
