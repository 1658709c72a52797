"""What each verb does, from its arguments to a report; `cli.py` parses and prints."""
