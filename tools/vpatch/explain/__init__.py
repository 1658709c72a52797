"""From an error's text to its cause: the texts are those of gates, preflight, series and smoke."""
