"""Static checks on a vLLM tree, in the order in which an engine start meets them."""
