"""Where releases come from: the package index, git remotes, and the mirror in the user's cache."""
