"""What runs under the engine environment's Python: tiny models, the reference, engine starts.

The tool copies these modules beside vLLM and runs them there (smoke/library.py), so they import
nothing of vpatch but one another.
"""
