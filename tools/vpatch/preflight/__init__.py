"""What will happen when a release loads this drafter beside this target: read, not run."""
