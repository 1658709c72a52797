"""Hidden states as training data: a set on disk, its proof, and the run that makes it."""
