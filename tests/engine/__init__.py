"""vLLM's own engine on a CPU, in child processes."""
