"""A series moves to another release: every patch is carried, judged and guarded."""
